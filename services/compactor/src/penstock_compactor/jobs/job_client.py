"""The requests of a job to the sequencers: lease its segments, read their contents, replace their extents.

A crash at any point leaves either the old extents or the new ones. It may leave orphans, and a lease that expires.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog

from penstock.contracts.commands import (
    Command,
    Done,
    LeaseJob,
    Outcome,
    PerItem,
    Rejected,
    ReleaseJob,
    ReplaceExtents,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId
from penstock.contracts.queries.compaction import SegmentExtentsQuery, SegmentExtentsView, SegmentView
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock_compactor.jobs.journal_clock import JournalClock, journal_clock
from penstock_compactor.jobs.values import Contents
from penstock_compactor.metrics import CompactorMetrics

JOB_ENTROPY_BYTES = 8

log = structlog.get_logger()


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The times of leases and the deadlines of commands."""

    lease_ms: int = 60_000  # after a crash, other compactors can use the segments of the job after this time
    renewal_s: float = 20.0
    command_deadline_s: float = 30.0
    # Of the release by a cancelled job: a stop waits for it, and has ten seconds for all. The sequencers may stop, too.
    cancelled_release_s: float = 4.0
    commit_deadline_s: float = 600.0  # some minutes later, the sequencers reject the outputs as too old
    rows_per_query: int = 200


class NotLeased(Exception):
    """Another compactor works on one of the segments."""


class JobClient:
    """A client of the sequencers for the jobs of one compactor; `holder` is the compactor's name."""

    def __init__(
        self,
        *,
        holder: str,
        sequencers: SequencerClient,
        clock: Clock,
        entropy: Entropy,
        metrics: CompactorMetrics,
        limits: JobLimits,
    ) -> None:
        self._holder = holder
        self._sequencers = sequencers
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._limits = limits

    @asynccontextmanager
    async def leased(self, segment_ids: Sequence[SegmentId]) -> AsyncIterator[str]:
        """Lease these segments for the length of a block; yields the id of the new job."""
        job_id = f"{self._holder}-{self._entropy.take(JOB_ENTROPY_BYTES).hex()}"
        try:
            await self._lease(job_id, segment_ids)
        except asyncio.CancelledError:
            await self._release(job_id)  # the sequencers may have given the lease already
            raise
        renewing = asyncio.create_task(self._renew(job_id, segment_ids))
        try:
            yield job_id
        finally:
            renewing.cancel()
            try:
                await asyncio.wait([renewing])  # a renewal after the release would lease the segments again
            finally:
                await self._release(job_id)

    def journal_clock(self) -> JournalClock:
        """The clock of the outputs of a job that was just leased."""
        return journal_clock(self._clock, self._sequencers.seen_clock_ms, self._sequencers.clock_seen_s)

    async def contents_of(self, segments: Sequence[SegmentView]) -> Contents:
        """The live extents of each segment, and the known transactions of their logs."""
        found = Contents()
        while len(found.extents) < len(segments):
            done = len(found.extents)
            rows = [segment.row for segment in segments[done : done + self._limits.rows_per_query]]
            view = await self._sequencers.query("segment_extents", SegmentExtentsQuery(0, rows), SegmentExtentsView)
            found.extents += view.extents
            found.transactions += [each for of_segment in view.transactions for each in of_segment]
        return found

    async def replace(self, command: ReplaceExtents) -> list[Rejection]:
        """Replace inputs with outputs; returns one rejection, or NONE, per run."""
        outcome = await self._request(command, self._limits.commit_deadline_s)
        if isinstance(outcome, PerItem):
            rejections = outcome.rejections
        elif isinstance(outcome, Rejected):
            log.warning("outputs_rejected", rejection=outcome.rejection.name, reason=outcome.message)
            rejections = [outcome.rejection] * len(command.runs)
        else:
            raise AssertionError(f"the answer of a sequencer to a replacement is {outcome}")
        for rejection, run in zip(rejections, command.runs, strict=True):
            self._metrics.runs.labels(rejection.name.lower()).inc()
            if rejection is Rejection.NONE:
                self._metrics.extents.inc(len(run.inputs) // 2)
        return rejections

    async def _lease(self, job_id: str, segment_ids: Sequence[SegmentId]) -> None:
        lease = LeaseJob(self._clock.now_ms(), job_id, self._holder, list(segment_ids), self._limits.lease_ms)
        outcome = await self._request(lease, self._limits.command_deadline_s)
        if isinstance(outcome, Rejected):
            raise NotLeased(f"{outcome.rejection.name}: {outcome.message}")
        assert isinstance(outcome, Done), f"the answer of a sequencer to a job lease is {outcome}"

    async def _renew(self, job_id: str, segment_ids: Sequence[SegmentId]) -> None:
        """Renew the lease. A lost lease does not stop the job, because the lease guards nothing."""
        while True:
            await asyncio.sleep(self._limits.renewal_s)
            try:
                await self._lease(job_id, segment_ids)
            except (NotLeased, Unavailable) as error:
                log.warning("job_lease_not_renewed", job=job_id, reason=str(error))

    async def _release(self, job_id: str) -> None:
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        deadline_s = self._limits.cancelled_release_s if is_cancelled else self._limits.command_deadline_s
        release = ReleaseJob(self._clock.now_ms(), job_id, self._holder)
        try:
            await self._request(release, deadline_s)
        except Unavailable as error:
            log.warning("job_lease_not_released", job=job_id, reason=str(error))

    async def _request(self, command: Command, deadline_s: float) -> Outcome:
        (outcome,) = await self._sequencers.command([command], deadline_s=deadline_s)
        return outcome
