"""Makes the journal expire records that are too old or too many, and drop extents that are pending delete.

The state machine decides by the topics' configurations and by two clocks that must agree: its own and this janitor's.
The janitor only asks which logs are due and sends commands for them, in bounded steps. It reports a journal clock that
is far ahead of its own: records that are too old only by the journal's clock stay. The state after a crash between two
steps:

1. `usage` and `retention`: nothing is changed.
2. TakeTaskLease: a task lease keeps other janitors away until it ends.
3. ExpireLogs and DropExtents: each is done completely or not at all, and the next step finds the rest.
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
from penstock_janitor.coordination.guard import Guard
from penstock_janitor.coordination.outcomes import accepted
from penstock_janitor.coordination.task_leases import (
    COMMAND_DEADLINE_S,
    LeasedTasks,
    TaskKind,
    TaskLeases,
    return_undone,
)
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.classification import age_text

CLOCK_AHEAD_MAX_MS = 600_000  # beyond it one of the two clocks is wrong
KIND = TaskKind(RETENTION_TASK, RETENTION_TASK + 1, 0)  # always due: the first janitor that finds work takes the task

log = structlog.get_logger()


class _Round(msgspec.Struct):
    """The data of one step. `leased` is set as soon as there is work to do."""

    leased: LeasedTasks | None = None
    lag_ms: int = 0
    overdue_bytes: int = 0

    @property
    def has_lease(self) -> bool:
        """Whether this janitor has the task."""
        return self.leased is not None and bool(self.leased.numbers)


class Retention:
    """The loop over all logs; one janitor at a time does the work."""

    def __init__(
        self,
        *,
        sequencers: SequencerClient,
        guard: Guard,
        tasks: TaskLeases,
        clock: Clock,
        metrics: JanitorMetrics,
        set_degraded: Callable[[str, str], None],
        interval_s: float,
        draining: asyncio.Event,
        dry_run: bool,
    ) -> None:
        self._sequencers = sequencers
        self._guard = guard
        self._tasks = tasks
        self._clock = clock
        self._metrics = metrics
        self._set_degraded = set_degraded
        self._is_ahead = False
        self._interval_s = interval_s
        self._draining = draining
        self._dry_run = dry_run

    async def step(self) -> float:
        """Check all logs, and do the work unless another janitor does it; return the seconds until the next step."""
        await self._guard.journal()
        current = _Round()
        try:
            await self._drop_waiting(current)
            await self._scan_logs(current)
        except PenstockError:
            if current.leased is not None:
                await return_undone(self._tasks, current.leased)
            raise
        self._metrics.retention_lag_seconds.set(current.lag_ms / 1000)
        self._metrics.overdue_bytes.set(current.overdue_bytes)
        if current.leased is not None and current.leased.numbers:
            await self._tasks.end(current.leased, done=True)
        return self._interval_s

    async def _drop_waiting(self, current: _Round) -> None:
        """Drop extents that are pending delete, and deleted topics whose undelete window is over."""
        usage = await self._sequencers.query("usage", UsageQuery(0), UsageView)
        self._compare_clocks(usage.clock_ms)
        is_window_over = usage.next_window_ms <= min(usage.clock_ms, self._clock.now_ms())
        if (usage.waiting_logs or is_window_over) and not self._dry_run:
            await self._take(current)
            await self._drop(current)

    async def _scan_logs(self, current: _Round) -> None:
        """Check all logs. Each query continues where the answer before it ended."""
        topic = 0
        while topic >= 0 and not self._draining.is_set():
            query = RetentionQuery(0, self._clock.now_ms(), topic)
            view = await self._sequencers.query("retention", query, RetentionView)
            has_expired = await self._expire_overdue(view.logs, current)
            # If nothing expires, a topic with more logs than an answer holds would get the same answer without end.
            is_stuck = view.next_topic == topic and not has_expired
            topic = topic + 1 if is_stuck else view.next_topic

    def _compare_clocks(self, journal_ms: int) -> None:
        """Report a journal clock that is far ahead. One sequencer with a fast clock is enough, and it stays ahead."""
        ahead_ms = journal_ms - self._clock.now_ms()
        self._metrics.clock_ahead_seconds.set(ahead_ms / 1000)
        is_ahead = ahead_ms > CLOCK_AHEAD_MAX_MS
        if is_ahead and not self._is_ahead:
            log.warning("clocks_disagree", journal_ahead_seconds=ahead_ms // 1000)
        self._is_ahead = is_ahead
        ahead = f"the journal's clock is {age_text(ahead_ms)} ahead of this janitor's"
        self._set_degraded("clock", f"{ahead}: records that are too old only by it stay" if is_ahead else "")

    async def _expire_overdue(self, overdue: Sequence[OverdueLog], current: _Round) -> bool:
        """Expire the overdue records of these logs; return whether any extent expired."""
        if not overdue:
            return False
        current.lag_ms = max(current.lag_ms, *(each.overdue_ms for each in overdue))
        current.overdue_bytes += sum(each.overdue_bytes for each in overdue)
        if self._dry_run:
            _log_dry_run(overdue)
            return False
        await self._take(current)
        return await self._expire(current, [LogRef(each.topic_id, each.partition) for each in overdue])

    async def _take(self, current: _Round) -> None:
        """Lease the task, unless another janitor has it and does the work."""
        if current.leased is None:
            current.leased = await self._tasks.take(KIND)

    async def _expire(self, current: _Round, logs: list[LogRef]) -> bool:
        extents = dropped_bytes = 0
        is_more = current.has_lease
        while is_more and not self._draining.is_set():
            command = ExpireLogs(self._clock.now_ms(), logs)
            (outcome,) = await self._sequencers.command([command], deadline_s=COMMAND_DEADLINE_S)
            trimmed = accepted(outcome, LogsTrimmed, "the expiry of records")
            step_extents = sum(each.extents for each in trimmed.logs)
            step_bytes = sum(each.dropped_bytes for each in trimmed.logs)
            self._count(step_extents, step_bytes)
            extents, dropped_bytes = extents + step_extents, dropped_bytes + step_bytes
            is_more = trimmed.is_more and step_extents > 0
            await self._renew(current)
        if extents:
            log.info("records_expired", logs=len(logs), extents=extents, bytes=dropped_bytes)
        return extents > 0

    async def _drop(self, current: _Round) -> None:
        """Drop extents before log starts and in deleted topics. Every Tick drops some, but large amounts need this."""
        extents = dropped_bytes = 0
        is_more = current.has_lease
        while is_more and not self._draining.is_set():
            command = DropExtents(self._clock.now_ms())
            (outcome,) = await self._sequencers.command([command], deadline_s=COMMAND_DEADLINE_S)
            dropped = accepted(outcome, ExtentsDropped, "the removal of extents")
            self._count(dropped.extents, dropped.dropped_bytes)
            extents, dropped_bytes = extents + dropped.extents, dropped_bytes + dropped.dropped_bytes
            is_more = dropped.is_more
            await self._renew(current)
        if extents:
            log.info("extents_dropped", extents=extents, bytes=dropped_bytes)

    async def _renew(self, current: _Round) -> None:
        assert current.leased is not None, "work without a lease"
        await self._tasks.renew(current.leased)

    def _count(self, extents: int, dropped_bytes: int) -> None:
        self._metrics.dropped_extents.inc(extents)
        self._metrics.dropped_bytes.inc(dropped_bytes)


def _log_dry_run(logs: Sequence[OverdueLog]) -> None:
    extents = sum(each.extents for each in logs)
    overdue_bytes = sum(each.overdue_bytes for each in logs)
    log.info("records_would_expire", logs=len(logs), extents=extents, bytes=overdue_bytes)
