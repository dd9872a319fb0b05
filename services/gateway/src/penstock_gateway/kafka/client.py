"""The client at the other end of one connection, as request handlers see it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from penstock.contracts.acls import PRINCIPAL_LENGTH_MAX, user_principal
from penstock.contracts.commands import Outcome, PerItem, Rejected
from penstock.contracts.configs.quotas import ANONYMOUS
from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.rejections import Rejection

Part = TypeVar("Part")


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _ignore() -> None:
    """The reaction of a client without a connection."""


class Arrival(NamedTuple):
    """When the bytes of a request came."""

    at_s: float  # monotonic
    sequence: int  # the newest journal entry that the gateway knew


@dataclass(slots=True)
class Client:
    """One connection's client; `client_id`, `zone` and `pool` follow its latest request."""

    host: str  # the peer's IP address
    zone: str  # where the client runs: the gateway's zone, unless its client id names another one
    pool: str = DEFAULT_POOL  # the gateway's pool, unless the client id names another one
    port: int = 0  # of the peer
    listener: str = "PLAINTEXT"  # the name of the listener that accepted the connection
    client_id: str = ""
    software_name: str = ""  # of the client, as its ApiVersions reports it (KIP-511)
    software_version: str = ""
    user: str = ANONYMOUS  # after a login or with an accepted client certificate: its user
    token_id: str = ""  # of the delegation token with which it logged in
    # Until then, monotonic, it must have logged in; infinite: it has, or its listener demands no login.
    login_deadline_s: float = math.inf
    session_end_s: float = math.inf  # from then on, monotonic, it must log in again
    closing_cause: str = ""  # the connection closes after the answer to the current request, for this cause
    # The newest journal entry that the client can know when it sends its current request; Produce does not use it.
    seen_sequence: int = -1  # -1: not given
    # When the Produce request came whose handler begins now, monotonic; infinite: when the handler begins.
    produce_arrived_s: float = math.inf
    _own_sequence: int = 0  # the newest entry with an accepted command of this connection
    muted_until_s: float = 0.0  # until then, monotonic, nothing is read from it: it has used up a quota
    has_large_request: bool = False  # the request in progress, not Produce, keeps much memory: do not wait long
    fetches_nothing: bool = False  # a quota is exceeded: the Fetch in progress gets no records
    is_leaving: bool = False  # the connection ends soon: do not wait long for anything
    unanswered_produces: int = 0  # in progress, with acks=0: the client may have gone already
    # Requests of one connection are decoded and run one at a time, in order. Only Produce has locks of its own: one
    # while a request is decoded, and one until a flusher has its batches. All locks admit tasks in the order in which
    # they arrived.
    serial_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    decode_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    produce_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    takes_answers: asyncio.Event = field(default_factory=_set_event)  # cleared while it leaves too many answers unread
    on_flusher_change: Callable[[], None] = _ignore  # called when its flusher may take more, or no more
    is_flusher_full: Callable[[], bool] = lambda: False  # whether to stop reading from the client
    on_close: list[Callable[[], None]] = field(default_factory=list)  # called when the connection has ended
    _parts: dict[type, Any] = field(default_factory=dict)

    @property
    def principal(self) -> str:
        """The name by which sequencers count its entries in shared tables; "" for ANONYMOUS (ADR 0040)."""
        return "" if self.user == ANONYMOUS else user_principal(self.user)[:PRINCIPAL_LENGTH_MAX]

    @property
    def needs_login(self) -> bool:
        """Whether it must log in before it may send other requests."""
        return self.login_deadline_s != math.inf

    def begin_request(self, arrival: Arrival) -> None:
        """Begin a request other than Produce.

        The request may have been sent behind earlier ones, before their answers. It follows their outcomes all the
        same, because requests of one connection run in order. It does not follow what other clients did meanwhile.
        """
        self.seen_sequence = max(arrival.sequence, self._own_sequence)

    def record_outcome(self, outcome: Outcome, sequence: int) -> None:
        """Record the outcome of this connection's command, and its entry. A late command is not part of its order."""
        if isinstance(outcome, Rejected) or (isinstance(outcome, PerItem) and Rejection.STALE in outcome.rejections):
            return
        self._own_sequence = max(self._own_sequence, sequence)

    def part(self, kind: type[Part]) -> Part:
        """The state that a package keeps for this connection: made by `kind()` when first asked for."""
        part: Part | None = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind()
        return part

    def close(self) -> None:
        """Release the state of packages, once: the connection has ended."""
        on_close, self.on_close = self.on_close, []
        for close in on_close:
            close()
        self.on_flusher_change = _ignore  # else client and connection keep each other, and all buffers, in memory
