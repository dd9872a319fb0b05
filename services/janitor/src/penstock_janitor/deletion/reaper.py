"""Deletes the objects of dead segments, then removes the segments from the journal.

The state after a crash between two steps:

1. `usage` and `condemned` (the query for dead segments): nothing is changed.
2. The bucket is compared with the journal, then LeaseJob: a job lease keeps other janitors away until it ends.
3. `known_segments`, after the lease, shows what other janitors did before it. Nothing is changed.
4. Some or all objects are deleted, and their segments are still dead in the journal. The next janitor deletes the
   objects again, which does no harm, and continues with step 5.
5. RemoveSegments and ReleaseJob, in one entry: all is done. After a lost answer the entry is sent again. The journal
   ignores segments that it has already removed.
"""

from collections.abc import Sequence

import structlog

from penstock.contracts.commands import Command, LeaseJob, Outcome, PerItem, Rejected, ReleaseJob, RemoveSegments
from penstock.contracts.ids import SegmentId
from penstock.contracts.queries.janitor import (
    DeadSegment,
    DeadSegmentsQuery,
    DeadSegmentsView,
    KnownSegmentsQuery,
    KnownSegmentsView,
    UsageQuery,
    UsageView,
)
from penstock.contracts.rejections import Rejection
from penstock.objectstore.store import DELETE_KEYS_MAX
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock.segment.keys import segment_key
from penstock_janitor.coordination.guard import Guard
from penstock_janitor.coordination.outcomes import accepted
from penstock_janitor.deletion.deleter import Deleted, Deleter, PendingDelete
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.classification import Now, Rules, classify_dead, classify_segment
from penstock_janitor.rules.journal import Checkpoints

COMMAND_DEADLINE_S = 30.0
OUTRUN_PAUSE_S = 0.5  # after another janitor leased the same segments at the same moment
JOB_ENTROPY_BYTES = 8
NO_PREFIX = ""  # the store's address contains the prefix

log = structlog.get_logger()


class Reaper:
    """The loop over dead segments; several janitors share them."""

    def __init__(
        self,
        *,
        cluster: str,
        holder: str,
        sequencers: SequencerClient,
        guard: Guard,
        deleter: Deleter,
        checkpoints: Checkpoints,
        rules: Rules,
        clock: Clock,
        entropy: Entropy,
        metrics: JanitorMetrics,
        interval_s: float,
        lease_ms: int,
    ) -> None:
        self._cluster = cluster
        self._holder = holder
        self._sequencers = sequencers
        self._guard = guard
        self._deleter = deleter
        self._checkpoints = checkpoints
        self._rules = rules
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._interval_s = interval_s
        self._lease_ms = lease_ms
        self._place = 0  # where a dry run continues: it removes nothing, so the first segments stay the first

    async def step(self) -> float:
        """Delete one batch, if there is one; the seconds until the next step."""
        journal = await self._guard.journal()
        usage = await self._sequencers.query("usage", UsageQuery(0), UsageView)
        self._checkpoints.record(journal, self._clock.monotonic_s(), usage.sequence)
        self._measure(usage)
        segments = await self._dead(usage) if usage.dead_segments else []
        if not segments:
            return self._interval_s
        if await self._guard.check() != journal:
            return 0  # the journal was rebuilt at this moment: begin again, also with the grace period
        if self._deleter.dry_run:
            now = self._now(usage.clock_ms, usage.secured_sequence)
            await self._deleter.delete([self._pending_delete(each, now) for each in segments])
            return self._interval_s  # also if there are more: a dry run is never urgent
        if not await self._reap([segment.segment_id for segment in segments]):
            return OUTRUN_PAUSE_S
        return 0 if len(segments) == DELETE_KEYS_MAX else self._interval_s

    async def _dead(self, usage: UsageView) -> list[DeadSegment]:
        now = self._now(usage.clock_ms, usage.secured_sequence)
        before_sequence = min(now.watched_sequence, now.secured_sequence)
        before_ms = now.clock_ms - self._rules.grace_ms
        query = DeadSegmentsQuery(0, before_ms, before_sequence, DELETE_KEYS_MAX, first_place=self._place)
        view = await self._sequencers.query("condemned", query, DeadSegmentsView)
        if self._deleter.dry_run:
            self._place = max(view.next_place, 0)
        return view.segments

    async def _reap(self, segment_ids: Sequence[SegmentId]) -> bool:
        """Lease these segments and delete those that are still dead; false if another janitor has one of them."""
        job_id = f"reap-{self._holder}-{self._entropy.take(JOB_ENTROPY_BYTES).hex()}"
        lease = LeaseJob(self._sequencers.seen_clock_ms, job_id, self._holder, list(segment_ids), self._lease_ms)
        (outcome,) = await self._sequencers.command([lease], deadline_s=COMMAND_DEADLINE_S)
        if isinstance(outcome, Rejected):
            log.info("segments_not_leased", rejection=outcome.rejection.name, reason=outcome.message)
            return False
        deleted = await self._deleter.delete(await self._still_dead(segment_ids))
        await self._end(job_id, deleted)
        if deleted.failure is not None:
            raise deleted.failure
        return True

    async def _still_dead(self, segment_ids: Sequence[SegmentId]) -> list[PendingDelete]:
        query = KnownSegmentsQuery(0, list(segment_ids))
        view = await self._sequencers.query("known_segments", query, KnownSegmentsView)
        now = self._now(view.clock_ms, view.secured_sequence)
        pending = []
        for segment_id, known in zip(segment_ids, view.segments, strict=True):
            if known is not None and known.view is not None:
                classification = classify_segment(known.view.level, segment_id, known, now, self._rules)
                if classification.is_deletable:
                    key = segment_key(NO_PREFIX, self._cluster, known.view.level, segment_id)
                    pending.append(PendingDelete(key, known.view.size_bytes, classification, segment_id))
        return pending

    async def _end(self, job_id: str, deleted: Deleted) -> None:
        """Remove the segments of deleted objects from the journal, and release the job lease.

        After a failure the lease stays until it expires, so that objects that cannot be deleted do not block others.
        """
        now_ms = self._sequencers.seen_clock_ms
        commands: list[Command] = []
        if deleted.gone:
            commands.append(RemoveSegments(now_ms, [each.segment_id for each in deleted.gone]))
        if deleted.failure is None:
            commands.append(ReleaseJob(now_ms, job_id, self._holder))
        if not commands:
            return
        outcomes = await self._sequencers.command(commands, deadline_s=COMMAND_DEADLINE_S)
        if deleted.gone:
            _check_removed(outcomes[0], deleted.gone)

    def _pending_delete(self, segment: DeadSegment, now: Now) -> PendingDelete:
        key = segment_key(NO_PREFIX, self._cluster, segment.level, segment.segment_id)
        classification = classify_dead(segment.dead_since_ms, segment.dead_sequence, now, self._rules)
        return PendingDelete(key, segment.size_bytes, classification, segment.segment_id)

    def _now(self, clock_ms: int, secured_sequence: int) -> Now:
        watched_sequence = self._checkpoints.watched_sequence(self._clock.monotonic_s())
        return Now(clock_ms, self._clock.now_ms(), secured_sequence, watched_sequence)

    def _measure(self, usage: UsageView) -> None:
        metrics = self._metrics
        metrics.bytes.labels("live").set(usage.live_bytes)
        metrics.bytes.labels("dead").set(usage.dead_bytes)
        metrics.bytes.labels("condemned").set(usage.dead_segment_bytes)
        metrics.segments.labels("live").set(usage.segments)
        metrics.segments.labels("condemned").set(usage.dead_segments)
        metrics.extents.set(usage.extents)
        metrics.waiting_logs.set(usage.waiting_logs)
        since_ms = usage.dead_since_ms
        metrics.dead_seconds.set(max(usage.clock_ms - since_ms, 0) / 1000 if since_ms >= 0 else 0)


def _check_removed(outcome: Outcome, gone: Sequence[PendingDelete]) -> None:
    """Log removals that the journal rejected. There are none, because a janitor deletes only dead segments.

    `Conflict` if it rejected the command: these segments are still dead, and a later step removes them.
    """
    rejections = accepted(outcome, PerItem, "the removal of segments").rejections
    for rejection, each in zip(rejections, gone, strict=True):
        if rejection is not Rejection.NONE:
            log.error("segment_not_removed", key=each.key, rejection=rejection.name)
