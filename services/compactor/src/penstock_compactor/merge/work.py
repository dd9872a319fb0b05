"""One merge job, from the lease to its release.

1. Lease the segments, and renew the lease during the job, so that other compactors do not use them.
2. Query the extents in them, and plan the outputs.
3. Spark runs one task per output. A thread of this process runs those of a small job (ADR 0046). A task that fails, or
   a machine that dies, leaves an orphan.
4. Send `ReplaceExtents` until its outcome is known. Readers see the old extents before it, the new ones after it.
5. Release the lease.
"""

import asyncio
import threading
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import structlog

from penstock.contracts.commands import OutputSegment, ReplacedRun, ReplaceExtents
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.rejections import Rejection
from penstock.runtime.clock import Clock, Entropy
from penstock_compactor.jobs.job_client import JobClient
from penstock_compactor.jobs.spark_runner import SparkRunner
from penstock_compactor.jobs.threads import in_thread
from penstock_compactor.jobs.values import Failed, JobResult, StorePlace
from penstock_compactor.merge.merge_task import merge
from penstock_compactor.merge.outputs import tasks_of
from penstock_compactor.merge.tasks import Merged, MergeTask
from penstock_compactor.metrics import CompactorMetrics
from penstock_compactor.planning.planner import Choice, PlanLimits

log = structlog.get_logger()


class MergeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one merge job."""

    # Of the tasks on Spark. Later the sequencers reject the outputs, and a hanging job must release its segments.
    merge_deadline_s: float = 900.0
    outputs_per_command_max: int = 500  # half of the state machine's limit


class MergeWork:
    """Runs the merge jobs of one compactor.

    Spark's workers get copies of the clock and the entropy. The entropy must have no state, or two copies give two
    segments the same id.
    """

    def __init__(
        self,
        *,
        place: StorePlace,
        client: JobClient,
        spark: SparkRunner,
        plan_limits: PlanLimits,
        clock: Clock,
        entropy: Entropy,
        metrics: CompactorMetrics,
        limits: MergeLimits,
    ) -> None:
        self._place = place
        self._client = client
        self._spark = spark
        self._plan_limits = plan_limits
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._limits = limits

    async def merge(self, choice: Choice, compacted: Collection[TopicId]) -> JobResult:
        """Run a job; `NotLeased` or `Unavailable` if that is not possible."""
        async with self._client.leased(choice.segment_ids) as job_id:
            contents = await self._client.contents_of(choice.segments)
            tasks = tasks_of(choice, contents, compacted=compacted, limits=self._plan_limits)
            results = await self._run(job_id, tasks, on_spark=choice.needs_spark(self._plan_limits))
            return await self._commit(job_id, tasks, results)

    async def _run(self, job_id: str, tasks: Sequence[MergeTask], *, on_spark: bool) -> list[Merged | Failed]:
        if not tasks:
            return []
        place, clock, entropy = self._place, self._client.journal_clock(), self._entropy

        def work(session: Any) -> list[Merged | Failed]:
            planned = session.sparkContext.parallelize(tasks, len(tasks))
            results: list[Merged | Failed] = planned.map(lambda task: merge(place, task, clock, entropy)).collect()
            return results

        deadline_s, where = self._limits.merge_deadline_s, "spark" if on_spark else "this process"
        try:
            async with asyncio.timeout(deadline_s):
                if not on_spark:
                    return await self._run_here(tasks)
                return await self._spark.run(job_id, work, pool=self._place.cluster)
        except TimeoutError as error:
            raise Unavailable(f"{where} did not end the job within {deadline_s:g} s") from error

    async def _run_here(self, tasks: Sequence[MergeTask]) -> list[Merged | Failed]:
        """Run the tasks in a thread; after a cancellation it ends with the next extent, and leaves an orphan."""
        place, clock, entropy = self._place, self._client.journal_clock(), self._entropy
        is_cancelled = threading.Event()

        def work() -> list[Merged | Failed]:
            return [merge(place, task, clock, entropy, is_cancelled.is_set) for task in tasks]

        try:
            return await in_thread(work)
        finally:
            is_cancelled.set()

    async def _commit(self, job_id: str, tasks: Sequence[MergeTask], results: Sequence[Merged | Failed]) -> JobResult:
        done = [(task, each) for task, each in zip(tasks, results, strict=True) if isinstance(each, Merged)]
        failures = tuple(each for each in results if isinstance(each, Failed))
        for failed in failures:
            self._metrics.task_failures.labels(failed.kind).inc()
            log.error("output_not_written", job=job_id, kind=failed.kind, reason=failed.reason)
        accepted = rejected = 0
        for part in _commands(done, self._plan_limits.job_extents_max, self._limits.outputs_per_command_max):
            rejections = await self._client.replace(replacement(self._clock.now_ms(), job_id, part))
            count = sum(rejection is Rejection.NONE for rejection in rejections)
            accepted, rejected = accepted + count, rejected + len(rejections) - count
        for task, merged in done:
            self._count(task, merged)
        outputs = tuple((each.segment_id, task.runs[0].topic_id) for task, each in done if task.level > 1)
        return JobResult(accepted, rejected, failures, outputs)

    def _count(self, task: MergeTask, merged: Merged) -> None:
        metrics = self._metrics
        for run in task.runs:
            for extent in run.extents:
                metrics.read_bytes.labels(task.segments[extent.segment].level).inc(extent.length)
        metrics.written_bytes.labels(merged.level).inc(merged.size_bytes)
        metrics.task_seconds.inc(merged.seconds)
        metrics.task_cpu_seconds.inc(merged.cpu_seconds)
        metrics.task_resident_bytes.set(merged.resident_bytes_max)


def replacement(now_ms: int, job_id: str, done: Sequence[tuple[MergeTask, Merged]]) -> ReplaceExtents:
    """The command that replaces the inputs of these outputs."""
    inputs: dict[SegmentId, int] = {}
    outputs, runs = [], []
    for number, (task, merged) in enumerate(done):
        outputs.append(OutputSegment(merged.segment_id, merged.level, merged.size_bytes))
        places = [inputs.setdefault(segment.segment_id, len(inputs)) for segment in task.segments]
        for run, found in zip(task.runs, merged.runs, strict=True):
            runs.append(
                ReplacedRun(
                    topic_id=run.topic_id,
                    partition=run.partition,
                    base_offset=run.extents[0].base_offset,
                    last_offset=run.extents[-1].last_offset,
                    inputs=[part for each in run.extents for part in (places[each.segment], each.position)],
                    output=number,
                    position=found.position,
                    length=found.length,
                    max_timestamp=found.max_timestamp,
                    without_aborted=run.without_aborted,
                )
            )
    return ReplaceExtents(now_ms, job_id, list(inputs), outputs, runs)


def _commands(
    done: Sequence[tuple[MergeTask, Merged]], extents_max: int, outputs_max: int
) -> list[list[tuple[MergeTask, Merged]]]:
    """The outputs of each command: one command, or several if it would have too many outputs or replaced extents."""
    parts: list[list[tuple[MergeTask, Merged]]] = []
    extents = 0
    for task, merged in done:
        extents += task.extent_count
        if not parts or extents > extents_max or len(parts[-1]) >= outputs_max:
            parts.append([])
            extents = task.extent_count
        parts[-1].append((task, merged))
    return parts
