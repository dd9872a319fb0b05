"""Finds logs that need key compaction with queries to the sequencers, and runs the jobs."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from penstock.contracts.batches import Extent
from penstock.contracts.configs.topics import compaction_configs, is_compacted
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import LogsQuery, LogsView, LogTransactions, LogView
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import check_known
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock_compactor.jobs.job_client import JobClient
from penstock_compactor.jobs.spark_runner import SparkRunner
from penstock_compactor.jobs.values import Failed, JobResult, StorePlace
from penstock_compactor.keys.commits import Commits
from penstock_compactor.keys.limits import KeyWorkLimits
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
from penstock_compactor.metrics import CompactorMetrics

if TYPE_CHECKING:
    from penstock_compactor.keys.job import Report

EXTENTS_BYTES = 2**62  # no byte budget, because the sequencers limit the number of extents in an answer

log = structlog.get_logger()


class KeyWork:
    """Key compaction for one compactor."""

    def __init__(
        self,
        *,
        place: StorePlace,
        sequencers: SequencerClient,
        client: JobClient,
        spark: SparkRunner,
        plan_limits: KeyLimits,
        clock: Clock,
        entropy: Entropy,
        metrics: CompactorMetrics,
        interval_s: float,
        limits: KeyWorkLimits,
    ) -> None:
        self._place = place
        self._sequencers = sequencers
        self._client = client
        self._spark = spark
        self._plan_limits = plan_limits
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._interval_s = interval_s
        self._limits = limits
        self._searched_s: float | None = None
        self._next_log = 0

    @property
    def is_search_due(self) -> bool:
        """Whether the interval since a search that found at most one job is over."""
        return self._searched_s is None or self._clock.monotonic_s() - self._searched_s >= self._interval_s

    async def find_jobs(self, topics: Sequence[TopicView], busy: Collection[SegmentId]) -> list[KeyJob]:
        """The jobs that are due; none within `interval_s` after a search that found at most one.

        Other jobs work on the segments in `busy`. The caller runs the first job, and searches again for the others.
        """
        if not self.is_search_due:
            return []
        now_s = self._clock.monotonic_s()
        configs = {each.topic_id: compaction_configs(each.configs) for each in topics if is_compacted(each.configs)}
        topics_due = [each for each in topics if each.topic_id in configs]
        logs: list[LogView] = []
        clock_ms = 0
        for topic_ids in _queries(topics_due, self._limits.logs_per_query):
            view = await self._sequencers.query("logs", LogsQuery(0, topic_ids), LogsView)
            logs += view.logs
            clock_ms = max(clock_ms, view.clock_ms)
        due = [each for each in logs if may_be_due(each, configs[each.topic_id], clock_ms)]
        extents, transactions = await self._inputs_of(due, busy)
        jobs = key_plans(due, configs, extents, clock_ms, self._plan_limits, transactions)
        self._searched_s = now_s if len(jobs) <= 1 else None  # with more jobs, search again at once
        return jobs

    async def compact(self, job: KeyJob) -> JobResult:
        """Run a job; `NotLeased` or `Unavailable` if that is not possible."""
        limits = self._limits
        async with self._client.leased(job.segment_ids[: limits.leased_max]) as job_id:
            clock = self._client.journal_clock()
            commits = Commits(self._client.replace)

            def work(session: Any) -> "Report":
                # Imported late, because it needs Arrow, which a compactor without Spark does not have.
                from penstock_compactor.keys.job import KeyCompaction

                compaction = KeyCompaction(session, self._place, clock, self._entropy, limits=limits.job)
                return compaction.run(job_id, job, commits)

            deadline_s = limits.job_deadline_s + job.size_bytes / limits.bytes_per_s_min
            try:
                async with asyncio.timeout(deadline_s):
                    report = await self._spark.run(job_id, work, pool=self._place.cluster, on_cancel=commits.cancel)
            except TimeoutError as error:
                raise Unavailable(f"spark did not end the job within {deadline_s:.0f} s") from error
        self._record(job_id, report)
        failures = tuple(Failed(kind, reason) for kind, reason in report.failures)
        return JobResult(report.outputs_committed, report.outputs_rejected, failures)

    async def _inputs_of(
        self, due: Sequence[LogView], busy: Collection[SegmentId]
    ) -> tuple[dict[PartitionId, list[KeyExtent]], dict[PartitionId, LogTransactions]]:
        """The extents and transactions of as many logs as the limits allow; the next search continues after them."""
        extents: dict[PartitionId, list[KeyExtent]] = {}
        transactions: dict[PartitionId, LogTransactions] = {}
        start = self._next_log % len(due) if due else 0
        held = 0
        for each in [*due[start:], *due[:start]][: self._limits.logs_inspected_max]:
            if held >= self._limits.extents_held_max:
                break
            key = (each.topic_id, each.partition)
            extents[key], transactions[key] = await self._inspect(each, busy)
            held += len(extents[key]) + len(transactions[key].aborted)
        self._next_log = 0 if len(extents) == len(due) else start + len(extents)
        return extents, transactions

    async def _inspect(self, each: LogView, busy: Collection[SegmentId]) -> tuple[list[KeyExtent], LogTransactions]:
        """The extents of a log up to its last stable offset, and the transactions in them."""
        extents: list[Extent] = []
        found = LogTransactions(each.topic_id, each.partition, each.last_stable_offset, [], [])
        offset = each.log_start_offset
        while offset < each.last_stable_offset:
            wanted = PlanPartition(each.topic_id, each.partition, offset, EXTENTS_BYTES)
            plan = (await self._sequencers.query("plan", PlanQuery(0, [wanted], EXTENTS_BYTES), Plan)).partitions[0]
            check_known(plan.rejection)
            if not plan.extents:
                break
            known_end = (
                extents[-1].last_offset + 1 if extents else 0
            )  # an answer may repeat extents of the previous one
            extents += [extent for extent in plan.extents if extent.base_offset >= known_end]
            found.markers.extend(plan.markers)
            found.aborted.extend(plan.aborted)
            offset = plan.extents[-1].last_offset + 1
            if plan.aborted_end_offset >= 0:
                offset = min(offset, plan.aborted_end_offset)
        return [KeyExtent(_input(extent), extent.segment.segment_id in busy) for extent in extents], found

    def _record(self, job_id: str, report: "Report") -> None:
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


def _queries(topics: Sequence[TopicView], logs_max: int) -> Iterator[list[TopicId]]:
    """The topics of each query: with at most the logs of one answer, or one topic with more logs."""
    topic_ids: list[TopicId] = []
    logs = 0
    for topic in topics:
        if topic_ids and logs + topic.partitions > logs_max:
            yield topic_ids
            topic_ids, logs = [], 0
        topic_ids.append(topic.topic_id)
        logs += topic.partitions
    if topic_ids:
        yield topic_ids
