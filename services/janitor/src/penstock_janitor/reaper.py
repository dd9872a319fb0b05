"""Deletes the objects of condemned segments, and has the journal forget them then.

What a death between two steps leaves:

1. `usage` and `dead`: nothing was begun.
2. The bucket is compared with the journal, then LeaseJob: a claim, which keeps other janitors off for a lease at most.
3. `known_segments`, after the claim, tells what others have done before it. Nothing is changed.
4. The objects are deleted: some or all are gone, and the journal still calls their segments condemned. Whoever comes
   next deletes them once more, which does no harm, and goes on from here.
5. RemoveSegments and ReleaseJob, in one entry: all is done. A lost answer has it sent again: what is forgotten is no
   news.
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
from penstock_janitor.checkpoints import Checkpoints
from penstock_janitor.deletion import Deleted, Deletion, PendingDelete
from penstock_janitor.identity import Guard
from penstock_janitor.judge import Now, Rules, judge_dead, judge_segment
from penstock_janitor.metrics import JanitorMetrics

COMMAND_DEADLINE_S = 30.0
OUTRUN_PAUSE_S = 0.5  # another janitor claimed the same segments in the same moment
JOB_ENTROPY_BYTES = 8
NO_PREFIX = ""  # the store's address has one of its own

log = structlog.get_logger()


class Reaper:
    """One janitor's share of the condemned segments."""

    def __init__(
        self,
        *,
        cluster: str,
        holder: str,
        sequencers: SequencerClient,
        guard: Guard,
        deletion: Deletion,
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
        self._deletion = deletion
        self._checkpoints = checkpoints
        self._rules = rules
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._interval_s = interval_s
        self._lease_ms = lease_ms
        self._place = 0  # of a dry run, in which the first ones stay the first

    async def step(self) -> float:
        """Delete one batch, if there is one; the seconds until the next look."""
        journal = await self._guard.journal()
        usage = await self._sequencers.query("usage", UsageQuery(0), UsageView)
        self._checkpoints.note(journal, self._clock.monotonic_s(), usage.sequence)
        self._measure(usage)
        segments = await self._dead(usage) if usage.dead_segments else []
        if not segments:
            return self._interval_s
        if await self._guard.check() != journal:
            return 0  # it was made anew this very moment: begin again, and count the grace anew
        if self._deletion.dry_run:
            await self._deletion.delete([self._pending_delete(each, self._now(usage)) for each in segments])
            return self._interval_s  # also if there are more: nobody needs to hear of them any faster
        if not await self._reap([segment.segment_id for segment in segments]):
            return OUTRUN_PAUSE_S
        return 0 if len(segments) == DELETE_KEYS_MAX else self._interval_s

    async def _dead(self, usage: UsageView) -> list[DeadSegment]:
        now = self._now(usage)
        before_sequence = min(now.watched_sequence, now.secured_sequence)
        before_ms = now.clock_ms - self._rules.grace_ms
        query = DeadSegmentsQuery(0, before_ms, before_sequence, DELETE_KEYS_MAX, first_place=self._place)
        view = await self._sequencers.query("condemned", query, DeadSegmentsView)
        if self._deletion.dry_run:
            self._place = max(view.next_place, 0)
        return view.segments

    async def _reap(self, segment_ids: Sequence[SegmentId]) -> bool:
        """Delete what is still condemned once these are claimed; false if somebody else has one of them."""
        job_id = f"reap-{self._holder}-{self._entropy.take(JOB_ENTROPY_BYTES).hex()}"
        lease = LeaseJob(self._sequencers.seen_clock_ms, job_id, self._holder, list(segment_ids), self._lease_ms)
        (outcome,) = await self._sequencers.command([lease], deadline_s=COMMAND_DEADLINE_S)
        if isinstance(outcome, Rejected):
            log.info("segments_not_claimed", rejection=outcome.rejection.name, reason=outcome.message)
            return False
        deleted = await self._deletion.delete(await self._still_dead(segment_ids))
        await self._end(job_id, deleted)
        if deleted.failure is not None:
            raise deleted.failure
        return True

    async def _still_dead(self, segment_ids: Sequence[SegmentId]) -> list[PendingDelete]:
        query = KnownSegmentsQuery(0, list(segment_ids))
        view = await self._sequencers.query("known_segments", query, KnownSegmentsView)
        now = Now(view.clock_ms, self._clock.now_ms(), view.secured_sequence, self._watched())
        pending_delete = []
        for segment_id, known in zip(segment_ids, view.segments, strict=True):
            if known is not None and known.view is not None:
                judgement = judge_segment(known.view.level, segment_id, known, now, self._rules)
                if judgement.goes:
                    key = segment_key(NO_PREFIX, self._cluster, known.view.level, segment_id)
                    pending_delete.append(PendingDelete(key, known.view.size_bytes, judgement, segment_id))
        return pending_delete

    async def _end(self, job_id: str, deleted: Deleted) -> None:
        """Have the journal forget what is gone, and give the claim back.

        Not after a failure: until the lease is over what could not be deleted does not stand before all the others.
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
        judgement = judge_dead(segment.dead_since_ms, segment.dead_sequence, now, self._rules)
        return PendingDelete(key, segment.size_bytes, judgement, segment.segment_id)

    def _now(self, usage: UsageView) -> Now:
        return Now(usage.clock_ms, self._clock.now_ms(), usage.secured_sequence, self._watched())

    def _watched(self) -> int:
        return self._checkpoints.watched_sequence(self._clock.monotonic_s())

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
    """Nothing is deleted that the journal does not call dead, so it lets go of all of it."""
    assert isinstance(outcome, PerItem), f"a sequencer answered {outcome} to what is to be forgotten"
    for rejection, each in zip(outcome.rejections, gone, strict=True):
        if rejection is not Rejection.NONE:
            log.error("segment_not_forgotten", key=each.key, rejection=rejection.name)
