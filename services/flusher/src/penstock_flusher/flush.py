"""Uploads closed buffers as segments in parallel, and commits them strictly in the order in which they closed.

The outcomes for a producer, and their guarantees:

- an offset: the segment is in the store, and its commit is in the journal;
- OVERLOADED: certainly not committed. Its upload failed, so its commit was never sent, or the state machine rejected
  it. An object may exist;
- OUTCOME_UNKNOWN: the commit was sent, and no answer came before the segment was too old for a commit. Or the commit
  was rejected as too old. An earlier attempt may have been accepted, and its result is no longer remembered;
- any other rejection: from the state machine.

Each commit has a lease, and the state machine remembers the commit until a little after it (ADR 0031). A commit that
comes after its lease is STALE: certainly not committed, so the flusher makes a new one. A request without a producer id
is committed only if its gateway confirms that its client still waits (ADR 0024). Such a lease is short, and with each
new one the gateways are asked again.

A lane with a landing store puts its segments there. A segment that the landing store does not store in time goes to the
final store: only its latency is another one.

The flusher never deletes an object. The janitor deletes objects that were uploaded but not committed.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.commands import COMMIT_LEASE_MS, Command, CommitSegment, Outcome, Rejected, SegmentCommitted
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.contracts.ids import (
    ENTROPY_BYTES,
    SegmentId,
    is_landed,
    new_landed_id,
    new_segment_id,
    ulid_text,
)
from penstock.contracts.rejections import Rejection
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock.segment import BuiltSegment, build_segment
from penstock.segment.keys import segment_key
from penstock_flusher.buffer import Reason
from penstock_flusher.closed_buffer import Flush, begin_commits, given_up, lease_end
from penstock_flusher.commit_group import commit_group_size, named, results_in_arrival_order, runs_without
from penstock_flusher.confirmation import Confirmer, confirm_all
from penstock_flusher.fragments import Fragment, rejected
from penstock_flusher.hedged_puts import SegmentStore
from penstock_flusher.landing import Landing
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.recent import RecentSegments
from penstock_flusher.segment_trace import trace_segment

log = structlog.get_logger()

LEVEL = 0  # flushers write only this level
NO_PREFIX = ""  # the store's URL already has the prefix
SLOWEST_CLOCK = 2  # the state machine's clock is slower by this factor while it is ahead of the sequencers' clocks
ATTEMPT_S = 1.0  # one attempt of a commit; the next attempt goes to another replica
CLOCK_AGE_MAX_MS = 1_000  # an older view of the state machine's clock would make leases too short


class Sequencers(Protocol):
    """The part of the sequencer client that is needed for commits."""

    seen_sequence: int
    seen_clock_ms: int
    clock_seen_s: float

    async def command(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float = ATTEMPT_S, trace: str = ""
    ) -> list[Outcome]: ...


class FlushLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of uploads and commits."""

    upload_parallel_max: int
    segment_age_max_s: float  # a segment older than this is never committed
    commit_bytes_max: int  # of one request with commits
    attempt_s: float = ATTEMPT_S


class FlushQueue:
    """Closed buffers, oldest first, and the tasks that upload and commit them."""

    def __init__(
        self,
        *,
        cluster: str,
        zone: str,
        instance: str,
        store: SegmentStore,
        sequencers: Sequencers,
        recent: RecentSegments,
        confirmer: Confirmer,
        clock: Clock,
        entropy: Entropy,
        metrics: FlusherMetrics,
        limits: FlushLimits,
        landing: Landing | None = None,
        traces: Traces = NO_TRACES,
    ) -> None:
        """`store` is for segments that do not land; `landing` is for a lane whose segments land."""
        self._cluster = cluster
        self._zone = zone
        self._instance = instance
        self._store = store
        self._sequencers = sequencers
        self._recent = recent
        self._confirmer = confirmer
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._limits = limits
        self._landing = landing
        self._traces = traces
        self._to_upload: asyncio.Queue[Flush] = asyncio.Queue()  # limited by the byte budget of the intake
        self._to_commit: deque[Flush] = deque()  # all flushes until they are answered
        self._submitted = asyncio.Event()
        self._answered_requests = 0  # by the commit in progress
        self._is_crowded = False  # whether the commit in progress was answered so
        self._on_answered: Callable[[int, bool], None] = lambda _requests, _is_crowded: None
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, fragments: list[Fragment], reason: Reason, first_s: float) -> None:
        """Add a closed buffer with bytes since `first_s`; each of its fragments will be settled."""
        assert fragments, "an empty buffer does not close"
        flush = Flush(fragments, closed_s=self._clock.monotonic_s())
        if self._traces.is_on:
            flush.trace = trace_segment(
                self._traces, fragments, first_s=first_s, closed_s=flush.closed_s, reason=reason.value
            )
        self._to_upload.put_nowait(flush)
        self._to_commit.append(flush)
        self._idle.clear()
        self._submitted.set()
        self._metrics.closed.labels(reason.value).inc()

    @property
    def under_way(self) -> int:
        """The number of closed buffers that are not yet answered."""
        return len(self._to_commit)

    def on_answered(self, callback: Callable[[int, bool], None]) -> None:
        """Call back with the number of answered requests, and whether the sequencers ask for fewer segments."""
        self._on_answered = callback

    async def run(self) -> None:
        """Upload and commit until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._limits.upload_parallel_max):
                group.create_task(self._upload_for_ever())
            group.create_task(self._commit_for_ever())

    async def until_idle(self) -> None:
        """Return when all submitted buffers are answered."""
        await self._idle.wait()

    async def _upload_for_ever(self) -> None:
        while True:
            flush = await self._to_upload.get()
            await self._upload(flush)
            flush.uploaded.set()

    async def _upload(self, flush: Flush) -> None:
        started_s = self._clock.monotonic_s()
        self._metrics.waits.labels("upload").observe(started_s - flush.closed_s)
        try:
            if self._landing is None or not await self._land(flush, self._landing):
                await self._put(flush, new_segment_id, self._store)
        except PenstockError as error:
            flush.built = None
            self._recent.discard(flush.segment_id)
            self._metrics.segments.labels("upload_given_up").inc()
            log.error("segment_upload_given_up", segment=ulid_text(flush.segment_id), error=str(error))
            return
        flush.stored_s = self._clock.monotonic_s()
        self._metrics.put_seconds.observe(flush.stored_s - started_s)
        if flush.trace is not None:
            flush.trace.record_stored(flush.segment_id, started_s, flush.stored_s)
        self._metrics.stored_segments.labels("landing" if is_landed(flush.segment_id) else "final").inc()

    async def _land(self, flush: Flush, landing: Landing) -> bool:
        """Put the flush into the landing store; whether that took it."""
        size_bytes = sum(each.size_bytes for each in flush.fragments)
        if not landing.take(size_bytes, self._clock.monotonic_s()):
            return False
        try:
            async with asyncio.timeout(landing.timeout_s(size_bytes)):
                await self._put(flush, new_landed_id, landing.store)
        except (PenstockError, TimeoutError) as error:
            landing.record_failed(error, self._clock.monotonic_s())
            self._recent.discard(flush.segment_id)
            return False
        landing.record_stored()
        return True

    async def _put(self, flush: Flush, new_id: Callable[[int, bytes], SegmentId], store: SegmentStore) -> None:
        built = self._build(flush, new_id)
        await store.put(segment_key(NO_PREFIX, self._cluster, LEVEL, flush.segment_id), built.buffers)

    def _build(self, flush: Flush, new_id: Callable[[int, bytes], SegmentId]) -> BuiltSegment:
        now_ms = self._now_ms()
        flush.segment_id = new_id(now_ms, self._entropy.take(ENTROPY_BYTES))
        flush.born_s = self._clock.monotonic_s()
        batches = []
        for fragment in flush.fragments:
            for batch, data in zip(fragment.batches, fragment.payload, strict=True):
                meta = named(batch.meta, fragment.principal, flush.principals)
                batches.append((batch.topic_id, batch.partition, meta, data))
        built = build_segment(flush.segment_id, writer=self._instance, created_ms=now_ms, level=LEVEL, batches=batches)
        flush.built = built
        self._recent.put(flush.segment_id, built.buffers, built.size_bytes)
        self._metrics.recent_bytes.set(self._recent.held_bytes)
        return built

    async def _commit_for_ever(self) -> None:
        while True:
            while not self._to_commit:
                self._idle.set()
                self._submitted.clear()
                await self._submitted.wait()
            await self._to_commit[0].uploaded.wait()
            self._answered_requests = 0
            self._is_crowded = False
            if self._to_commit[0].built is None:
                await self._settle_rejected(self._to_commit.popleft(), Rejection.OVERLOADED)
            else:
                await self._commit(self._next_group())
            self._on_answered(self._answered_requests, self._is_crowded)

    def _next_group(self) -> list[Flush]:
        """The stored flushes at the head of the queue for one commit; they stay in the queue."""
        count = commit_group_size(self._stored(), self._limits.commit_bytes_max)
        return list(itertools.islice(self._to_commit, count))

    def _stored(self) -> Iterator[tuple[BuiltSegment, Collection[str]]]:
        """The stored segments that can be committed together: either all were sent before with one lease, or none."""
        first = self._to_commit[0].command
        for flush in self._to_commit:
            if not flush.uploaded.is_set() or flush.built is None or lease_end(flush.command) != lease_end(first):
                return
            yield flush.built, flush.principals

    async def _commit(self, group: list[Flush]) -> None:
        """Commit the group and answer it; without an outcome, only too old segments leave the queue."""
        started_s = self._clock.monotonic_s()
        attempt_s = self._limits.attempt_s
        left_s = group[0].born_s + self._limits.segment_age_max_s - started_s
        for flush in group:
            self._metrics.waits.labels("turn").observe(started_s - flush.stored_s)
        try:
            if group[0].command is None:
                await self._see_clock(max(left_s, attempt_s))
                not_after_ms = await self._confirm(group)
                for flush in group:
                    flush.command = self._command(flush, not_after_ms)
            outcomes = await self._sequencers.command(
                [flush.command for flush in group if flush.command is not None],
                deadline_s=max(left_s, attempt_s),
                attempt_s=attempt_s,
                trace=begin_commits(group, started_s),
            )
        except Unavailable as error:
            log.error("segment_commit_without_answer", segments=len(group), error=str(error))
            await self._reject_too_old()
            return
        except Invalid as error:
            log.error("segment_commit_impossible", segments=len(group), error=str(error))
            for _ in group:
                await self._settle_rejected(self._to_commit.popleft(), Rejection.INVALID_REQUEST)
            return
        self._metrics.commit_seconds.observe(self._clock.monotonic_s() - started_s)
        self._metrics.commit_segments.observe(len(group))
        for flush, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Rejected) and outcome.rejection is Rejection.STALE:
                break
            assert self._to_commit.popleft() is flush, "commits are answered in the order of the queue"
            await self._settle(flush, outcome)
        for flush in group:  # STALE: none of them was committed, nor can be by this command
            flush.command = None

    async def _see_clock(self, deadline_s: float) -> None:
        """Learn the state machine's clock, unless an answer brought it a moment ago.

        A lease that ended long before it was given would leave the outcome unknown.
        """
        if not self._sequencers.seen_clock_ms or self._since_clock_ms() > CLOCK_AGE_MAX_MS:
            await self._sequencers.command([], deadline_s=deadline_s, attempt_s=self._limits.attempt_s)

    async def _confirm(self, group: list[Flush]) -> int:
        """Drop the requests that their gateways have given up; return the latest time for the commit.

        A lease of gateways counts from a time that the state machine's clock has certainly reached when they are asked.
        Without one the latest time may be later than intended: then the machine remembers the commit for longer.
        """
        wanted: dict[str, dict[int, None]] = {}  # an ordered set: a request's parts have one number
        for flush in group:
            for fragment in flush.fragments:
                if fragment.needs_confirmation:
                    wanted.setdefault(fragment.gateway, {})[fragment.request] = None
        if not wanted:
            return self._now_ms() + COMMIT_LEASE_MS
        from_ms = self._sequencers.seen_clock_ms + self._since_clock_ms() // SLOWEST_CLOCK
        leases = await confirm_all(self._confirmer, {gateway: list(numbers) for gateway, numbers in wanted.items()})
        for flush in group:
            flush.dropped.update(given_up(flush, leases))
        given_ms = [each for each in leases.values() if each]
        return max(from_ms, 1) + min(given_ms) if given_ms else self._now_ms() + COMMIT_LEASE_MS

    def _command(self, flush: Flush, not_after_ms: int) -> CommitSegment:
        assert flush.built is not None, "only a stored segment is committed"
        runs = runs_without(flush.built, flush.dropped)
        return CommitSegment(
            self._now_ms(),
            flush.segment_id,
            flush.built.size_bytes,
            self._instance,
            self._zone,
            runs,
            not_after_ms,
            list(flush.principals),
        )

    def _now_ms(self) -> int:
        """The wall clock's time, but at most what the state machine's clock can show by now, and not less.

        That clock does not go back when a wall clock is set back. While it is ahead of the sequencers' wall clocks it
        runs at half speed. So since the last answer it ran as long as the uptime clock here, or half as long. A segment
        born by a wrong wall clock would be too old for a commit, or not born yet.
        """
        now_ms, seen_ms = self._clock.now_ms(), self._sequencers.seen_clock_ms
        if not seen_ms:
            return now_ms
        passed_ms = self._since_clock_ms()
        return min(max(now_ms, seen_ms + passed_ms // SLOWEST_CLOCK), seen_ms + passed_ms)

    def _since_clock_ms(self) -> int:
        return int((self._clock.monotonic_s() - self._sequencers.clock_seen_s) * 1000)

    async def _reject_too_old(self) -> None:
        born_before_s = self._clock.monotonic_s() - self._limits.segment_age_max_s
        while self._to_commit and self._to_commit[0].built and self._to_commit[0].born_s <= born_before_s:
            await self._settle_rejected(self._to_commit.popleft(), Rejection.OUTCOME_UNKNOWN)

    async def _settle(self, flush: Flush, outcome: Outcome) -> None:
        if isinstance(outcome, Rejected):
            log.error("segment_rejected", segment=ulid_text(flush.segment_id), rejection=outcome.rejection.name)
            is_too_old = outcome.rejection is Rejection.SEGMENT_TOO_OLD
            await self._settle_rejected(flush, Rejection.OUTCOME_UNKNOWN if is_too_old else outcome.rejection)
            return
        assert flush.built is not None, "only a stored segment is committed"
        self._is_crowded |= isinstance(outcome, SegmentCommitted) and outcome.is_crowded
        results = results_in_arrival_order(flush.built, flush.dropped, outcome)
        self._metrics.segments.labels("committed").inc()
        self._metrics.segment_bytes.inc(flush.built.size_bytes)
        accepted = sum(not result.rejection for result in results)
        self._metrics.batches.labels("accepted").inc(accepted)
        self._metrics.batches.labels("refused").inc(len(results) - accepted)
        if flush.trace is not None:
            flush.trace.end(flush.segment_id, self._clock.monotonic_s())
        position = 0
        for fragment in flush.fragments:
            of_fragment = results[position : position + fragment.batch_count]
            position += fragment.batch_count
            await fragment.message.settle(fragment.index, of_fragment, self._sequencers.seen_sequence)
        self._answered_requests += len(flush.fragments)

    async def _settle_rejected(self, flush: Flush, rejection: Rejection) -> None:
        if flush.trace is not None:
            flush.trace.end(flush.segment_id, self._clock.monotonic_s(), rejection.name)
        self._metrics.segments.labels(rejection.name.lower()).inc()
        self._metrics.batches.labels("refused").inc(sum(fragment.batch_count for fragment in flush.fragments))
        for fragment in flush.fragments:
            await fragment.message.settle(fragment.index, rejected(fragment.batches, rejection), 0)
        self._answered_requests += len(flush.fragments)
