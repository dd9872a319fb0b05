"""The client at the other end of one connection, as request handlers see it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.contracts.configs.quotas import ANONYMOUS

Part = TypeVar("Part")


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _ignore() -> None:
    """The reaction of a client without a connection."""


@dataclass(slots=True)
class Client:
    """One connection's client; `client_id` and `zone` follow its latest request."""

    host: str  # the peer's IP address
    zone: str  # where the client runs: the gateway's zone, unless its client id names another one
    listener: str = "PLAINTEXT"  # the name of the listener that accepted the connection
    client_id: str = ""
    user: str = ANONYMOUS
    muted_until_s: float = 0.0  # until then, monotonic, nothing is read from it: it has used up a quota
    is_leaving: bool = False  # the connection ends soon: do not wait long for anything
    unanswered_produces: int = 0  # in progress, with acks=0: the client may have gone already
    # Requests of one connection run one at a time, in order. Only Produce has a lock of its own, which a request
    # releases when a flusher has its batches. Both locks admit tasks in the order in which they arrived.
    serial_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    produce_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    takes_answers: asyncio.Event = field(default_factory=_set_event)  # cleared while it leaves too many answers unread
    on_flusher_change: Callable[[], None] = _ignore  # called when its flusher may take more, or no more
    is_flusher_full: Callable[[], bool] = lambda: False  # whether to stop reading from the client
    on_close: list[Callable[[], None]] = field(default_factory=list)  # called when the connection has ended
    _parts: dict[type, Any] = field(default_factory=dict)

    def part(self, kind: type[Part]) -> Part:
        """The state that a package keeps for this connection: made by `kind()` when first asked for."""
        part: Part | None = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind()
        return part

    def close(self) -> None:
        """Release the state of packages: the connection has ended."""
        for close in self.on_close:
            close()
        self.on_flusher_change = _ignore  # else client and connection keep each other, and all buffers, in memory
