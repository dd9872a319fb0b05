"""Commands and queries to the sequencers: asks again until somebody answers, and never goes back in time."""

import asyncio
from typing import Protocol, TypeVar

import msgspec

from penstock.contracts import codec, subjects
from penstock.contracts.commands import Command, CommandReply, CommandRequest, Outcome
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import GroupWaitQuery
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock

ATTEMPT_S = 1.0  # a replica that died has been replaced by another's queue subscription long before
QUERY_DEADLINE_S = 10.0
RETRY_MS_MIN = 10  # a refused or undelivered attempt comes back at once; this is between it and the next
RETRY_MS_MAX = 320


class Answer(Protocol):
    """What every answer of a sequencer tells: the journal sequence that it reflects, and why it is none."""

    @property
    def sequence(self) -> int: ...

    @property
    def failure(self) -> str | None: ...


View = TypeVar("View", bound=Answer)


class SequencerClient:
    """Whichever sequencers there are, as one.

    `seen_sequence` is the highest journal sequence in any answer, `seen_clock_ms` the latest time of the state machine
    in any answer to commands, `seen_level` the level that the cluster has reached, None until that was announced, which
    was first at `level_told_s` (monotonic).
    """

    def __init__(self, bus: Bus, cluster: str, clock: Clock) -> None:
        self.seen_sequence = 0
        self.seen_clock_ms = 0
        self.seen_level: int | None = None
        self.level_told_s = 0.0
        self._bus = bus
        self._cluster = cluster
        self._clock = clock

    def record_sequence(self, sequence: int) -> None:
        """Later queries reflect at least this journal sequence."""
        self.seen_sequence = max(self.seen_sequence, sequence)

    def record_level(self, level: int) -> None:
        """The cluster has reached this level, which never falls."""
        if self.seen_level is None:
            self.level_told_s = self._clock.monotonic_s()
        self.seen_level = max(self.seen_level or 0, level)

    async def command(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float = ATTEMPT_S
    ) -> list[Outcome]:
        """One outcome per command, all from one journal entry.

        Sends them again, `attempt_s` seconds at a time, until `deadline_s` seconds from now; then `Unavailable`, and
        whether they were done is unknown. `Invalid` if they do not fit into a message.
        """
        subject = subjects.sequencer_command(self._cluster)
        request = CommandRequest(commands)
        reply = await self._ask(subject, request, CommandReply, deadline_s, attempt_s)
        return reply.outcomes

    async def query(
        self,
        name: str,
        query: msgspec.Struct,
        view: type[View],
        *,
        deadline_s: float = QUERY_DEADLINE_S,
        attempt_s: float = ATTEMPT_S,
    ) -> View:
        """The answer to one of `subjects.QUERY_NAMES`, true at `seen_sequence` or later.

        Asks again, `attempt_s` seconds at a time, until `deadline_s` seconds from now; then `Unavailable`. What a
        group wait waits by its own wish is added to `attempt_s`.
        """
        if isinstance(query, GroupWaitQuery):
            attempt_s += query.wait_ms / 1000
        return await self._ask(subjects.sequencer_query(self._cluster, name), query, view, deadline_s, attempt_s)

    async def _ask(
        self, subject: str, request: msgspec.Struct, kind: type[View], deadline_s: float, attempt_s: float
    ) -> View:
        end_s = self._clock.monotonic_s() + deadline_s
        retry_ms = RETRY_MS_MIN
        while True:
            left_s = max(end_s - self._clock.monotonic_s(), 0.001)
            try:
                return await self._attempt(subject, request, kind, min(attempt_s, left_s))
            except Unavailable as error:
                if self._clock.monotonic_s() + retry_ms / 1000 >= end_s:
                    raise Unavailable(f"no sequencer answered within {deadline_s:g} s: {error}") from error
            await asyncio.sleep(retry_ms / 1000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _attempt(self, subject: str, request: msgspec.Struct, kind: type[View], timeout_s: float) -> View:
        if getattr(request, "min_sequence", self.seen_sequence) < self.seen_sequence:
            request = msgspec.structs.replace(request, min_sequence=self.seen_sequence)
        answer = codec.decode(await self._bus.request(subject, codec.encode(request), timeout_s), kind)
        self.record_sequence(answer.sequence)
        self.seen_clock_ms = max(self.seen_clock_ms, getattr(answer, "clock_ms", 0))
        if answer.failure is not None:
            raise Unavailable(answer.failure)
        return answer
