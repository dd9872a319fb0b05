"""Finds key compaction to do, and does it: asks sequencers how logs stand, and for the extents of those in need."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from penstock.contracts.batches import Extent
from penstock.contracts.commands import ReplaceExtents
from penstock.contracts.configs.topics import compaction_configs, is_compacted
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import LogsQuery, LogsView, LogTransactions, LogView
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_compactor.keys.plan import (
    KEY_LEVEL,
    KeyExtent,
    KeyInput,
    KeyJob,
    KeyLimits,
    PartitionId,
    key_plans,
    may_be_due,
)
from penstock_compactor.merge.jobs import Ended, Jobs
from penstock_compactor.merge.spark_runner import SparkRunner
from penstock_compactor.merge.tasks import Failed, StorePlace
from penstock_compactor.metrics import CompactorMetrics

if TYPE_CHECKING:
    from penstock_compactor.keys.job import Report

LOGS_PER_QUERY = 2_000  # about 200 KB of answer
EXTENTS_BYTES = 2**62  # no budget of a plan: the number of extents in it is bounded by whoever answers
# No claim may have more; a log that is in more segments is not worth giving up for that.
LEASED_MAX = 20_000
# Of one look; the others have their turn in the next one.
LOGS_LOOKED_INTO_MAX = 100
EXTENTS_HELD_MAX = 200_000  # when there are so many, no further log is looked into; about 60 MB
# Of a job on Spark: then others may have what keeps it from getting on. Every byte is read twice and written once.
JOB_DEADLINE_S = 900.0
BYTES_PER_S_MIN = 2_000_000

log = structlog.get_logger()


class KeyWork:
    """Key compaction for one compactor."""

    def __init__(
        self,
        *,
        place: StorePlace,
        sequencers: SequencerClient,
        jobs: Jobs,
        spark: SparkRunner,
        limits: KeyLimits,
        clock: Clock,
        metrics: CompactorMetrics,
        interval_s: float,
    ) -> None:
        self._place = place
        self._sequencers = sequencers
        self._jobs = jobs
        self._spark = spark
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_s
        self._looked_s: float | None = None
        self._turn = 0

    async def look(self, topics: Sequence[TopicView], busy: Collection[SegmentId]) -> list[KeyJob]:
        """What there is to do now, unless there was little just before; `busy` are segments that others work on.

        Whoever looks takes the first job, and looks again afterwards for the others.
        """
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < self._interval_s:
            return []
        configs = {each.topic_id: compaction_configs(each.configs) for each in topics if is_compacted(each.configs)}
        logs: list[LogView] = []
        clock_ms = 0
        for topic_ids in _partition_reads([each for each in topics if each.topic_id in configs]):
            view = await self._sequencers.query("logs", LogsQuery(0, topic_ids), LogsView)
            logs += view.logs
            clock_ms = max(clock_ms, view.clock_ms)
        due = [each for each in logs if may_be_due(each, configs[each.topic_id], clock_ms)]
        extents, transactions = await self._logs_in_turn(due, busy)
        jobs = key_plans(due, configs, extents, clock_ms, self._limits, transactions)
        self._looked_s = now_s if len(jobs) <= 1 else None  # where more waits there is no time to lose
        return jobs

    async def compact(self, job: KeyJob) -> Ended:
        """Do a job; `NotLeased` or `Unavailable` if it could not be done."""
        loop = asyncio.get_running_loop()
        async with self._jobs.leased(job.segment_ids[:LEASED_MAX]) as job_id:

            def commit(command: ReplaceExtents) -> bool:
                outcome = asyncio.run_coroutine_threadsafe(self._jobs.replace(command), loop).result()
                return all(rejection is Rejection.NONE for rejection in outcome)

            def work(session: Any) -> "Report":
                from penstock_compactor.keys.job import (
                    KeyCompaction,  # it needs Arrow, and a compactor without Spark has none
                )

                return KeyCompaction(session, self._place, self._clock).run(job_id, job, commit)

            deadline_s = JOB_DEADLINE_S + job.size_bytes / BYTES_PER_S_MIN
            try:
                async with asyncio.timeout(deadline_s):
                    report = await self._spark.run(job_id, work)
            except TimeoutError as error:
                raise Unavailable(f"spark was not done after {deadline_s:.0f} s") from error
        self._note(job_id, report)
        failures = tuple(Failed(kind, reason) for kind, reason in report.failures)
        return Ended(report.outputs_committed, report.outputs_rejected, failures)

    async def _logs_in_turn(
        self, due: Sequence[LogView], busy: Collection[SegmentId]
    ) -> tuple[dict[PartitionId, list[KeyExtent]], dict[PartitionId, LogTransactions]]:
        """Extents and transactions of as many logs as may be looked into, beginning where the last look ended."""
        extents: dict[PartitionId, list[KeyExtent]] = {}
        transactions: dict[PartitionId, LogTransactions] = {}
        start = self._turn % len(due) if due else 0
        held = 0
        for each in [*due[start:], *due[:start]][:LOGS_LOOKED_INTO_MAX]:
            if held >= EXTENTS_HELD_MAX:
                break
            key = (each.topic_id, each.partition)
            extents[key], transactions[key] = await self._look_into(each, busy)
            held += len(extents[key]) + len(transactions[key].aborted)
        self._turn = 0 if len(extents) == len(due) else start + len(extents)
        return extents, transactions

    async def _look_into(self, each: LogView, busy: Collection[SegmentId]) -> tuple[list[KeyExtent], LogTransactions]:
        """The extents of a log up to where all is decided, and its transactions there."""
        extents: list[Extent] = []
        found = LogTransactions(each.topic_id, each.partition, each.last_stable_offset, [], [])
        offset = each.log_start_offset
        while offset < each.last_stable_offset:
            wanted = PlanPartition(each.topic_id, each.partition, offset, EXTENTS_BYTES)
            plan = (await self._sequencers.query("plan", PlanQuery(0, [wanted], EXTENTS_BYTES), Plan)).partitions[0]
            if not plan.extents:
                break
            behind = extents[-1].last_offset + 1 if extents else 0  # the first may have been told before
            extents += [extent for extent in plan.extents if extent.base_offset >= behind]
            found.markers.extend(plan.markers)
            found.aborted.extend(plan.aborted)
            offset = plan.extents[-1].last_offset + 1
            if plan.aborted_end_offset >= 0:
                offset = min(offset, plan.aborted_end_offset)
        return [KeyExtent(_input(extent), extent.segment.segment_id in busy) for extent in extents], found

    def _note(self, job_id: str, report: "Report") -> None:
        for kind, reason in report.failures:
            self._metrics.task_failures.labels(kind).inc()
            log.error("output_not_written", job=job_id, kind=kind, reason=reason)
        for level, size_bytes in report.bytes_in.items():
            self._metrics.read_bytes.labels(level).inc(size_bytes)
        self._metrics.written_bytes.labels(KEY_LEVEL).inc(report.bytes_out)
        self._metrics.task_seconds.inc(report.task_seconds)
        self._metrics.task_cpu_seconds.inc(report.task_cpu_seconds)
        self._metrics.task_resident_bytes.set(report.resident_bytes_max)


def _input(extent: Extent) -> KeyInput:
    return KeyInput(
        extent.segment.segment_id,
        extent.segment.level,
        extent.base_offset,
        extent.last_offset,
        extent.position,
        extent.length,
        extent.max_timestamp,
    )


def _partition_reads(topics: Sequence[TopicView]) -> Iterator[list[TopicId]]:
    """Topics with no more logs than one answer may hold, or one that has more."""
    partition_read: list[TopicId] = []
    logs = 0
    for topic in topics:
        if partition_read and logs + topic.partitions > LOGS_PER_QUERY:
            yield partition_read
            partition_read, logs = [], 0
        partition_read.append(topic.topic_id)
        logs += topic.partitions
    if partition_read:
        yield partition_read
