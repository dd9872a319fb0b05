"""The client of the sequencers: sends commands and queries, retries, and never reads an older state than before.

Large requests of one process wait for each other, so that small ones pass. Otherwise those of a few clients would fill
the queues of the sequencers. Attempts would end before an answer, and each next attempt would add its bytes (ADR 0042).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Protocol, TypeVar

import msgspec

from penstock.contracts import codec, subjects
from penstock.contracts.commands import Command, CommandReply, CommandRequest, Outcome
from penstock.contracts.errors import Unavailable, Undelivered
from penstock.contracts.queries.groups import GroupWaitQuery
from penstock.contracts.subjects import Sender
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.byte_budget import ByteBudget

TURN_SHARE = 0.5  # of a request's deadline: a request that gets its turn also has time for an answer


class SequencerClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long one request waits, when it is sent again, and how many large ones are under way."""

    # One attempt. Much longer than the time after which a live replica gets the requests of a dead one.
    attempt_s: float = 1.0
    # One query with all its attempts, unless the caller gives another deadline.
    query_deadline_s: float = 10.0
    # The pause after the first attempt, because a rejected or undelivered attempt fails at once. It then doubles.
    retry_ms_min: int = 10
    retry_ms_max: int = 320
    # A request of this size is large. The join of a consumer of 2,000 topics is smaller, and so are usual commits.
    large_bytes_min: int = 64 * 1024
    # Of all large requests of this process that have no answer yet. A journal takes so many bytes in some 50 ms.
    large_bytes_max: int = 2 * 1024 * 1024
    # One attempt of a large request. On a busy machine its bytes are under way for more than a second.
    large_attempt_s: float = 3.0


DEFAULT_LIMITS = SequencerClientLimits()


class Answer(Protocol):
    """The common fields of all answers: the journal sequence that it reflects, and the failure if it has no result."""

    @property
    def sequence(self) -> int: ...

    @property
    def failure(self) -> str | None: ...


View = TypeVar("View", bound=Answer)


class SequencerClient:
    """All sequencers of a cluster, as one.

    `seen_sequence` is the highest journal sequence in any answer. `seen_clock_ms` is the latest journal clock in any
    answer to commands. `clock_seen_s` is the monotonic time of the last such answer. `seen_level` is the level that the
    cluster has reached, None before the first announcement. `level_seen_s` is the monotonic time of that announcement.
    Commands go to the subject of `sender`; sequencers reject those that are not of its kind.
    """

    def __init__(
        self,
        bus: Bus,
        cluster: str,
        clock: Clock,
        *,
        sender: Sender = Sender.ADMIN,
        limits: SequencerClientLimits = DEFAULT_LIMITS,
    ) -> None:
        self.sender = sender
        self.seen_sequence = 0
        self.seen_clock_ms = 0
        self.clock_seen_s = 0.0
        self.seen_level: int | None = None
        self.level_seen_s = 0.0
        self._bus = bus
        self._cluster = cluster
        self._clock = clock
        self._limits = limits
        self._large = ByteBudget(limits.large_bytes_max)

    def record_sequence(self, sequence: int) -> None:
        """Make later queries reflect at least this journal sequence."""
        self.seen_sequence = max(self.seen_sequence, sequence)

    def record_level(self, level: int) -> None:
        """Record that the cluster has reached this level, which never falls."""
        if self.seen_level is None:
            self.level_seen_s = self._clock.monotonic_s()
        self.seen_level = max(self.seen_level or 0, level)

    async def command(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float | None = None, trace: str = ""
    ) -> list[Outcome]:
        """Send commands and return one outcome per command, all from one journal entry.

        Each attempt takes up to `attempt_s` seconds, all attempts up to `deadline_s`. Then `Unavailable`: it is
        unknown whether the commands had an effect. `Undelivered` if large commands did not get their turn. `Invalid`
        if they do not fit into a message. `trace`: the span that waits for the outcomes.
        """
        return (await self.command_reply(commands, deadline_s=deadline_s, attempt_s=attempt_s, trace=trace)).outcomes

    async def command_reply(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float | None = None, trace: str = ""
    ) -> CommandReply:
        """As `command`, with the sequence of the entry."""
        subject = subjects.sequencer_command(self._cluster, self.sender)
        return await self._ask(subject, CommandRequest(commands, trace=trace), CommandReply, deadline_s, attempt_s)

    async def query(
        self,
        name: str,
        query: msgspec.Struct,
        view: type[View],
        *,
        deadline_s: float | None = None,
        attempt_s: float | None = None,
    ) -> View:
        """The answer to one of `subjects.QUERY_NAMES`, as of `seen_sequence` or later.

        Each attempt takes up to `attempt_s` seconds, all attempts up to `deadline_s`; then `Unavailable`. The wait of
        a group wait query is added to `attempt_s`.
        """
        subject = subjects.sequencer_query(self._cluster, name)
        deadline_s = self._limits.query_deadline_s if deadline_s is None else deadline_s
        extra_s = query.wait_ms / 1000 if isinstance(query, GroupWaitQuery) else 0.0
        return await self._ask(subject, query, view, deadline_s, attempt_s, extra_s)

    async def _ask(
        self,
        subject: str,
        request: msgspec.Struct,
        kind: type[View],
        deadline_s: float,
        attempt_s: float | None,
        extra_s: float = 0.0,
    ) -> View:
        end_s = self._clock.monotonic_s() + deadline_s
        request = self._current(request)
        encoded = codec.encode(request)
        size_bytes = len(encoded)
        is_large = size_bytes >= self._limits.large_bytes_min
        data = None if is_large else encoded
        del encoded  # a large request may wait for its turn, and is encoded again then
        if attempt_s is None:
            attempt_s = self._limits.large_attempt_s if is_large else self._limits.attempt_s
        attempt_s += extra_s
        retry_ms = self._limits.retry_ms_min
        async with self._turn(size_bytes, deadline_s * TURN_SHARE) if is_large else nullcontext():
            while True:
                current = self._current(request)
                if data is None or current is not request:
                    request, data = current, codec.encode(current)
                left_s = max(end_s - self._clock.monotonic_s(), 0.001)
                try:
                    return await self._attempt(subject, data, kind, min(attempt_s, left_s))
                except Unavailable as error:
                    if self._clock.monotonic_s() + retry_ms / 1000 >= end_s:
                        raise Unavailable(f"no sequencer answered within {deadline_s:g} s: {error}") from error
                await asyncio.sleep(retry_ms / 1000)
                retry_ms = min(2 * retry_ms, self._limits.retry_ms_max)

    @asynccontextmanager
    async def _turn(self, size_bytes: int, wait_s: float) -> AsyncIterator[None]:
        """Wait for the turn of a large request, and keep it for a block; `Undelivered` if it does not come."""
        try:
            async with asyncio.timeout(wait_s) as limit, self._large.hold(size_bytes):
                limit.reschedule(None)
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Undelivered(f"a request of {size_bytes} bytes did not get its turn within {wait_s:g} s") from error

    def _current(self, request: msgspec.Struct) -> msgspec.Struct:
        """The request, or the same one that must reflect a newer entry, if one was seen since it was made."""
        if getattr(request, "min_sequence", self.seen_sequence) < self.seen_sequence:
            return msgspec.structs.replace(request, min_sequence=self.seen_sequence)
        return request

    async def _attempt(self, subject: str, data: bytes, kind: type[View], timeout_s: float) -> View:
        answer = codec.decode(await self._bus.request(subject, data, timeout_s), kind)
        self.record_sequence(answer.sequence)
        clock_ms = getattr(answer, "clock_ms", 0)
        if clock_ms:
            self.seen_clock_ms, self.clock_seen_s = max(self.seen_clock_ms, clock_ms), self._clock.monotonic_s()
        if answer.failure is not None:
            raise Unavailable(answer.failure)
        return answer
