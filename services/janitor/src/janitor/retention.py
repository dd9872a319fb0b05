"""Has the journal let go of records that are too old or too much, and of what is to be dropped since before.

The state machine judges by its own clock and the topics' configurations; here it is only asked what there is to do, and
told to do it, in bounded steps. What a death between two steps leaves:

1. `metadata` and `retention`: nothing was begun.
2. TakeChore: a lease, which keeps other janitors from it for five minutes at most.
3. ExpireLogs and DropExtents: each is done wholly or not at all, and the rest is found by the next look.
4. EndChore: all is done.
"""

from collections.abc import Iterator, Sequence

import structlog

from janitor.chores import COMMAND_DEADLINE_S, Chores, Kind, Taken, give_up
from janitor.identity import Guard
from janitor.metrics import JanitorMetrics
from penstock.contracts.commands import DropExtents, ExpireLogs, ExtentsDropped, LogsTrimmed
from penstock.contracts.errors import PenstockError
from penstock.contracts.ids import TopicId
from penstock.contracts.janitor_commands import LOGS_PER_COMMAND_MAX, RETENTION_CHORE, LogRef
from penstock.contracts.janitor_queries import OverdueLog, RetentionQuery, RetentionView, UsageQuery, UsageView
from penstock.contracts.queries import MetadataQuery, MetadataView, TopicView
from penstock.runtime.sequencer_client import SequencerClient

PARTITIONS_PER_QUERY = 2_000  # or one topic, if that has more: a millisecond or two of a sequencer's time
KIND = Kind(RETENTION_CHORE, RETENTION_CHORE + 1, 0)  # whoever finds something to do does it

log = structlog.get_logger()


class Retention:
    """One janitor's turn at it."""

    def __init__(
        self,
        *,
        sequencers: SequencerClient,
        guard: Guard,
        chores: Chores,
        metrics: JanitorMetrics,
        interval_s: float,
        dry_run: bool,
    ) -> None:
        self._sequencers = sequencers
        self._guard = guard
        self._chores = chores
        self._metrics = metrics
        self._interval_s = interval_s
        self._dry_run = dry_run

    async def step(self) -> float:
        """Look at all logs, and do what there is to do unless another janitor does; the seconds until the next look."""
        await self._guard.journal()
        overdue = await self._overdue()
        waiting = (await self._sequencers.query("usage", UsageQuery(0), UsageView)).waiting_logs
        if self._dry_run:
            self._tell(overdue)
        elif overdue or waiting:
            await self._take_turn(overdue)
        return self._interval_s

    async def _take_turn(self, overdue: Sequence[OverdueLog]) -> None:
        taken = await self._chores.take(KIND)
        if not taken.numbers:
            return
        try:
            for first in range(0, len(overdue), LOGS_PER_COMMAND_MAX):
                await self._expire(taken, overdue[first : first + LOGS_PER_COMMAND_MAX])
            await self._drop(taken)
        except PenstockError:
            await give_up(self._chores, taken)
            raise
        await self._chores.end(taken, done=True)

    async def _overdue(self) -> list[OverdueLog]:
        """Every log of which something should be gone."""
        metadata = await self._sequencers.query("metadata", MetadataQuery(0, None), MetadataView)
        overdue: list[OverdueLog] = []
        for topic_ids in _portions(metadata.topics):
            query = RetentionQuery(0, topic_ids)
            overdue += (await self._sequencers.query("retention", query, RetentionView)).logs
        self._metrics.retention_lag_seconds.set(max((each.overdue_ms for each in overdue), default=0) / 1000)
        self._metrics.overdue_bytes.set(sum(each.overdue_bytes for each in overdue))
        return overdue

    async def _expire(self, taken: Taken, overdue: Sequence[OverdueLog]) -> None:
        logs = [LogRef(each.topic_id, each.partition) for each in overdue]
        extents = dropped_bytes = 0
        is_more = True
        while is_more:
            command = ExpireLogs(self._sequencers.seen_clock_ms, logs)
            (outcome,) = await self._sequencers.command([command], deadline_s=COMMAND_DEADLINE_S)
            assert isinstance(outcome, LogsTrimmed), f"a sequencer answered {outcome} to what is to expire"
            step = sum(each.extents for each in outcome.logs)
            extents += step
            dropped_bytes += sum(each.dropped_bytes for each in outcome.logs)
            self._count(step, sum(each.dropped_bytes for each in outcome.logs))
            is_more = outcome.is_more and step > 0
            await self._chores.keep(taken)
        log.info("records_expired", logs=len(logs), extents=extents, bytes=dropped_bytes)

    async def _drop(self, taken: Taken) -> None:
        """What lies before log starts and in deleted topics: every Tick drops some of it, this is for large amounts."""
        extents = dropped_bytes = 0
        is_more = True
        while is_more:
            command = DropExtents(self._sequencers.seen_clock_ms)
            (outcome,) = await self._sequencers.command([command], deadline_s=COMMAND_DEADLINE_S)
            assert isinstance(outcome, ExtentsDropped), f"a sequencer answered {outcome} to what is to be dropped"
            extents += outcome.extents
            dropped_bytes += outcome.dropped_bytes
            self._count(outcome.extents, outcome.dropped_bytes)
            is_more = outcome.is_more and outcome.extents > 0
            await self._chores.keep(taken)
        if extents:
            log.info("extents_dropped", extents=extents, bytes=dropped_bytes)

    def _count(self, extents: int, dropped_bytes: int) -> None:
        self._metrics.dropped_extents.inc(extents)
        self._metrics.dropped_bytes.inc(dropped_bytes)

    def _tell(self, overdue: Sequence[OverdueLog]) -> None:
        if overdue:
            extents = sum(each.extents for each in overdue)
            overdue_bytes = sum(each.overdue_bytes for each in overdue)
            log.info("records_would_expire", logs=len(overdue), extents=extents, bytes=overdue_bytes)


def _portions(topics: Sequence[TopicView]) -> Iterator[list[TopicId]]:
    """The topics' ids, as many at once as one question should ask for."""
    portion: list[TopicId] = []
    partitions = 0
    for topic in topics:
        if portion and partitions + topic.partitions > PARTITIONS_PER_QUERY:
            yield portion
            portion, partitions = [], 0
        portion.append(topic.topic_id)
        partitions += topic.partitions
    if portion:
        yield portion
