"""Has the journal let go of records that are too old or too much, and of what is to be dropped since before.

The state machine judges by the topics' configurations and by two clocks that have to agree, its own and this janitor's;
here it is only asked what there is to do, and told to do it, in bounded steps. A clock of the journal that is far ahead
of ours is told of: until ours says so, too, what is too old by it stays. What a death between two steps leaves:

1. `usage` and `retention`: nothing was begun.
2. TakeTaskLease: a lease, which keeps other janitors from it as long as it lasts.
3. ExpireLogs and DropExtents: each is done wholly or not at all, and the rest is found by the next look.
4. EndTaskLease: all is done.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from penstock.contracts.commands import RETENTION_TASK, DropExtents, ExpireLogs, ExtentsDropped, LogRef, LogsTrimmed
from penstock.contracts.errors import PenstockError
from penstock.contracts.queries.janitor import OverdueLog, RetentionQuery, RetentionView, UsageQuery, UsageView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_janitor.identity import Guard
from penstock_janitor.judge import age
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.task_leases import COMMAND_DEADLINE_S, Kind, Taken, TaskLeases, give_up

CLOCK_AHEAD_MAX_MS = 600_000  # beyond it a clock is wrong, the journal's or ours
KIND = Kind(RETENTION_TASK, RETENTION_TASK + 1, 0)  # whoever finds something to do does it

log = structlog.get_logger()


class _Turn(msgspec.Struct):
    """One look, and the chore once there is something to do."""

    taken: Taken | None = None
    lag_ms: int = 0
    overdue_bytes: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether it is ours to do."""
        return self.taken is not None and bool(self.taken.numbers)


class Retention:
    """One janitor's turn at it."""

    def __init__(
        self,
        *,
        sequencers: SequencerClient,
        guard: Guard,
        tasks: TaskLeases,
        clock: Clock,
        metrics: JanitorMetrics,
        tell: Callable[[str, str], None],
        interval_s: float,
        leaving: asyncio.Event,
        dry_run: bool,
    ) -> None:
        self._sequencers = sequencers
        self._guard = guard
        self._tasks = tasks
        self._clock = clock
        self._metrics = metrics
        self._tell = tell
        self._is_ahead = False
        self._interval_s = interval_s
        self._leaving = leaving
        self._dry_run = dry_run

    async def step(self) -> float:
        """Look at all logs, and do what there is to do unless another janitor does; the seconds until the next look."""
        await self._guard.journal()
        turn = _Turn()
        try:
            await self._let_go(turn)
            await self._look(turn)
        except PenstockError:
            if turn.taken is not None:
                await give_up(self._tasks, turn.taken)
            raise
        self._metrics.retention_lag_seconds.set(turn.lag_ms / 1000)
        self._metrics.overdue_bytes.set(turn.overdue_bytes)
        if turn.taken is not None and turn.taken.numbers:
            await self._tasks.end(turn.taken, done=True)
        return self._interval_s

    async def _let_go(self, turn: "_Turn") -> None:
        """What waits to be dropped, and deleted topics whose window is over."""
        usage = await self._sequencers.query("usage", UsageQuery(0), UsageView)
        self._compare_clocks(usage.clock_ms)
        is_window_over = usage.next_window_ms <= min(usage.clock_ms, self._clock.now_ms())
        if (usage.waiting_logs or is_window_over) and not self._dry_run:
            await self._take(turn)
            await self._drop(turn)

    async def _look(self, turn: "_Turn") -> None:
        """All logs, as many at once as one answer tells of; an answer goes on where the one before ended."""
        topic = 0
        while topic >= 0 and not self._leaving.is_set():
            query = RetentionQuery(0, self._clock.now_ms(), topic)
            view = await self._sequencers.query("retention", query, RetentionView)
            has_gone = await self._deal_with(view.logs, turn)
            # Where nothing goes, a topic with more logs than an answer tells of would be told of for ever.
            is_stuck = view.next_topic == topic and not has_gone
            topic = topic + 1 if is_stuck else view.next_topic

    def _compare_clocks(self, journal_ms: int) -> None:
        """A sequencer whose clock was ahead once leaves the journal's there for ever."""
        ahead_ms = journal_ms - self._clock.now_ms()
        self._metrics.clock_ahead_seconds.set(ahead_ms / 1000)
        is_ahead = ahead_ms > CLOCK_AHEAD_MAX_MS
        if is_ahead and not self._is_ahead:
            log.warning("clocks_disagree", journal_ahead_seconds=ahead_ms // 1000)
        self._is_ahead = is_ahead
        reason = f"the journal's clock is {age(ahead_ms)} ahead of this janitor's: what is too old by it alone stays"
        self._tell("clock", reason if is_ahead else "")

    async def _deal_with(self, overdue: Sequence[OverdueLog], turn: "_Turn") -> bool:
        """Whether something went."""
        if not overdue:
            return False
        turn.lag_ms = max(turn.lag_ms, *(each.overdue_ms for each in overdue))
        turn.overdue_bytes += sum(each.overdue_bytes for each in overdue)
        if self._dry_run:
            _tell_of(overdue)
            return False
        await self._take(turn)
        return await self._expire(turn, [LogRef(each.topic_id, each.partition) for each in overdue])

    async def _take(self, turn: "_Turn") -> None:
        """The chore is ours, unless another janitor has it: then that one does what there is to do."""
        if turn.taken is None:
            turn.taken = await self._tasks.take(KIND)

    async def _expire(self, turn: "_Turn", logs: list[LogRef]) -> bool:
        extents = dropped_bytes = 0
        is_more = turn.is_ours
        while is_more and not self._leaving.is_set():
            command = ExpireLogs(self._clock.now_ms(), logs)
            (outcome,) = await self._sequencers.command([command], deadline_s=COMMAND_DEADLINE_S)
            assert isinstance(outcome, LogsTrimmed), f"a sequencer answered {outcome} to what is to expire"
            step_extents = sum(each.extents for each in outcome.logs)
            step_bytes = sum(each.dropped_bytes for each in outcome.logs)
            self._count(step_extents, step_bytes)
            extents, dropped_bytes = extents + step_extents, dropped_bytes + step_bytes
            is_more = outcome.is_more and step_extents > 0
            await self._keep(turn)
        if extents:
            log.info("records_expired", logs=len(logs), extents=extents, bytes=dropped_bytes)
        return extents > 0

    async def _drop(self, turn: "_Turn") -> None:
        """What lies before log starts and in deleted topics: every Tick drops some of it, this is for large amounts."""
        extents = dropped_bytes = 0
        is_more = turn.is_ours
        while is_more and not self._leaving.is_set():
            command = DropExtents(self._clock.now_ms())
            (outcome,) = await self._sequencers.command([command], deadline_s=COMMAND_DEADLINE_S)
            assert isinstance(outcome, ExtentsDropped), f"a sequencer answered {outcome} to what is to be dropped"
            self._count(outcome.extents, outcome.dropped_bytes)
            extents, dropped_bytes = extents + outcome.extents, dropped_bytes + outcome.dropped_bytes
            is_more = outcome.is_more
            await self._keep(turn)
        if extents:
            log.info("extents_dropped", extents=extents, bytes=dropped_bytes)

    async def _keep(self, turn: "_Turn") -> None:
        assert turn.taken is not None, "nobody's turn"
        await self._tasks.keep(turn.taken)

    def _count(self, extents: int, dropped_bytes: int) -> None:
        self._metrics.dropped_extents.inc(extents)
        self._metrics.dropped_bytes.inc(dropped_bytes)


def _tell_of(logs: Sequence[OverdueLog]) -> None:
    extents = sum(each.extents for each in logs)
    overdue_bytes = sum(each.overdue_bytes for each in logs)
    log.info("records_would_expire", logs=len(logs), extents=extents, bytes=overdue_bytes)
