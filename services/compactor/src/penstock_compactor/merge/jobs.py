"""One job from claim to release: what is in its segments, the tasks, one command that puts outputs in their place.

1. The segments are claimed, and claimed again while the job lasts, so that other compactors leave them alone.
2. The extents in them are asked for, and the outputs planned.
3. Spark runs one task per output. A task that fails, or a machine that dies, costs an orphan.
4. `ReplaceExtents`, sent again until its outcome is known. Readers see the old extents before it, the new ones after.
5. The claim is given back.

Dying at any point leaves the old extents or the new ones, perhaps orphans, and a claim that ends by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import structlog

from penstock.contracts.commands import (
    Command,
    Done,
    LeaseJob,
    Outcome,
    OutputSegment,
    PerItem,
    Rejected,
    ReleaseJob,
    ReplacedRun,
    ReplaceExtents,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import SegmentExtentsQuery, SegmentExtentsView, SegmentView
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock_compactor.merge.merge_task import merge
from penstock_compactor.merge.outputs import Contents, tasks_of
from penstock_compactor.merge.spark_runner import SparkRunner
from penstock_compactor.merge.tasks import Failed, Merged, MergeTask, StorePlace
from penstock_compactor.metrics import CompactorMetrics
from penstock_compactor.planning.planner import Choice, PlanLimits

LEASE_MS = 60_000  # a compactor that died keeps others from its segments for so long
RENEWAL_S = 20.0
COMMAND_DEADLINE_S = 30.0
COMMIT_DEADLINE_S = 600.0  # afterwards the outputs are too old to be taken
# Of a merge on Spark: nobody takes the outputs afterwards, and others may have what keeps it from getting on.
MERGE_DEADLINE_S = 900.0
ROWS_PER_QUERY = 200
OUTPUTS_PER_COMMAND_MAX = 500  # half of what the state machine takes at once
JOB_ENTROPY_BYTES = 8

log = structlog.get_logger()


class NotLeased(Exception):
    """Somebody else works on one of the segments."""


class Ended(msgspec.Struct, frozen=True):
    """How a job went."""

    accepted: int = 0  # runs
    rejected: int = 0
    failures: tuple[Failed, ...] = ()
    outputs: tuple[tuple[SegmentId, TopicId], ...] = ()  # those of one topic

    @property
    def is_good(self) -> bool:
        """Whether everything that was planned is done."""
        return not self.rejected and not self.failures


class Jobs:
    """Runs jobs for one compactor, which is `holder`."""

    def __init__(
        self,
        *,
        holder: str,
        place: StorePlace,
        sequencers: SequencerClient,
        spark: SparkRunner,
        limits: PlanLimits,
        clock: Clock,
        entropy: Entropy,
        metrics: CompactorMetrics,
    ) -> None:
        self._holder = holder
        self._place = place
        self._sequencers = sequencers
        self._spark = spark
        self._limits = limits
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics

    async def merge(self, choice: Choice, compacted: Collection[TopicId]) -> Ended:
        """Do a merging job; `NotLeased` or `Unavailable` if it could not be done."""
        async with self.leased(choice.segment_ids) as job_id:
            contents = await self.contents_of(choice.segments)
            tasks = tasks_of(choice, contents, compacted=compacted, limits=self._limits)
            results = await self._run(job_id, tasks)
            return await self._commit(job_id, tasks, results)

    @asynccontextmanager
    async def leased(self, segment_ids: Sequence[SegmentId]) -> AsyncIterator[str]:
        """The id of a new job that has these segments while the block lasts."""
        job_id = f"{self._holder}-{self._entropy.take(JOB_ENTROPY_BYTES).hex()}"
        await self._lease(job_id, segment_ids)
        renewing = asyncio.create_task(self._renew(job_id, segment_ids))
        try:
            yield job_id
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            await self._release(job_id)

    async def contents_of(self, segments: Sequence[SegmentView]) -> Contents:
        """The live extents of each segment, and what is told of their transactions."""
        found = Contents()
        while len(found.extents) < len(segments):
            done = len(found.extents)
            rows = [segment.row for segment in segments[done : done + ROWS_PER_QUERY]]
            view = await self._sequencers.query("segment_extents", SegmentExtentsQuery(0, rows), SegmentExtentsView)
            found.extents += view.extents
            found.transactions += [each for of_segment in view.transactions for each in of_segment]
        return found

    async def replace(self, command: ReplaceExtents) -> list[Rejection]:
        """Put outputs in the place of their inputs; one refusal, or NONE, per run."""
        outcome = await self._decide(command, COMMIT_DEADLINE_S)
        if isinstance(outcome, PerItem):
            rejections = outcome.rejections
        elif isinstance(outcome, Rejected):
            log.warning("outputs_refused", rejection=outcome.rejection.name, reason=outcome.message)
            rejections = [outcome.rejection] * len(command.runs)
        else:
            raise AssertionError(f"a sequencer answered {outcome} to a replacement")
        for rejection, run in zip(rejections, command.runs, strict=True):
            self._metrics.runs.labels(rejection.name.lower()).inc()
            if rejection is Rejection.NONE:
                self._metrics.extents.inc(len(run.inputs) // 2)
        return rejections

    async def _run(self, job_id: str, tasks: Sequence[MergeTask]) -> list[Merged | Failed]:
        if not tasks:
            return []
        place = self._place

        def work(session: Any) -> list[Merged | Failed]:
            planned = session.sparkContext.parallelize(tasks, len(tasks))
            results: list[Merged | Failed] = planned.map(lambda task: merge(place, task)).collect()
            return results

        try:
            async with asyncio.timeout(MERGE_DEADLINE_S):
                return await self._spark.run(job_id, work)
        except TimeoutError as error:
            raise Unavailable(f"spark was not done after {MERGE_DEADLINE_S:g} s") from error

    async def _commit(self, job_id: str, tasks: Sequence[MergeTask], results: Sequence[Merged | Failed]) -> Ended:
        done = [(task, each) for task, each in zip(tasks, results, strict=True) if isinstance(each, Merged)]
        failures = tuple(each for each in results if isinstance(each, Failed))
        for failed in failures:
            self._metrics.task_failures.labels(failed.kind).inc()
            log.error("output_not_written", job=job_id, kind=failed.kind, reason=failed.reason)
        accepted = rejected = 0
        for part in _commands(done, self._limits.job_extents_max):
            rejections = await self.replace(replacement(self._clock.now_ms(), job_id, part))
            taken = sum(rejection is Rejection.NONE for rejection in rejections)
            accepted, rejected = accepted + taken, rejected + len(rejections) - taken
        for task, merged in done:
            self._count(task, merged)
        outputs = tuple((each.segment_id, task.runs[0].topic_id) for task, each in done if task.level > 1)
        return Ended(accepted, rejected, failures, outputs)

    def _count(self, task: MergeTask, merged: Merged) -> None:
        metrics = self._metrics
        for run in task.runs:
            for extent in run.extents:
                metrics.read_bytes.labels(task.segments[extent.segment].level).inc(extent.length)
        metrics.written_bytes.labels(merged.level).inc(merged.size_bytes)
        metrics.task_seconds.inc(merged.seconds)
        metrics.task_cpu_seconds.inc(merged.cpu_seconds)
        metrics.task_resident_bytes.set(merged.resident_bytes_max)

    async def _lease(self, job_id: str, segment_ids: Sequence[SegmentId]) -> None:
        outcome = await self._decide(self._lease_of(job_id, segment_ids), COMMAND_DEADLINE_S)
        if isinstance(outcome, Rejected):
            raise NotLeased(f"{outcome.rejection.name}: {outcome.message}")
        assert isinstance(outcome, Done), f"a sequencer answered {outcome} to a claim"

    async def _renew(self, job_id: str, segment_ids: Sequence[SegmentId]) -> None:
        """Keep the claim; a lost one is no reason to stop, as it guards nothing."""
        while True:
            await asyncio.sleep(RENEWAL_S)
            try:
                await self._lease(job_id, segment_ids)
            except (NotLeased, Unavailable) as error:
                log.warning("claim_not_renewed", job=job_id, reason=str(error))

    async def _release(self, job_id: str) -> None:
        try:
            await self._decide(ReleaseJob(self._clock.now_ms(), job_id, self._holder), COMMAND_DEADLINE_S)
        except Unavailable as error:
            log.warning("claim_not_released", job=job_id, reason=str(error))

    async def _decide(self, command: Command, deadline_s: float) -> Outcome:
        (outcome,) = await self._sequencers.command([command], deadline_s=deadline_s)
        return outcome

    def _lease_of(self, job_id: str, segment_ids: Sequence[SegmentId]) -> LeaseJob:
        return LeaseJob(self._clock.now_ms(), job_id, self._holder, list(segment_ids), LEASE_MS)


def replacement(now_ms: int, job_id: str, done: Sequence[tuple[MergeTask, Merged]]) -> ReplaceExtents:
    """The command for outputs of a job."""
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


def _commands(done: Sequence[tuple[MergeTask, Merged]], extents_max: int) -> list[list[tuple[MergeTask, Merged]]]:
    """One command for all outputs, unless these or the extents that they replace are more than one may have."""
    parts: list[list[tuple[MergeTask, Merged]]] = []
    extents = 0
    for task, merged in done:
        extents += task.extent_count
        if not parts or extents > extents_max or len(parts[-1]) >= OUTPUTS_PER_COMMAND_MAX:
            parts.append([])
            extents = task.extent_count
        parts[-1].append((task, merged))
    return parts
