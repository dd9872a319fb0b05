"""The compactor's loop: searches for jobs, and runs as many at the same time as the settings allow."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
import structlog

from penstock.contracts.configs.topics import is_compacted
from penstock.contracts.errors import PenstockError
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import SegmentsQuery, SegmentsView
from penstock.contracts.queries.topics import TopicView
from penstock.runtime.bus.listings import all_topics
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_compactor.jobs.job_client import JobClient, NotLeased
from penstock_compactor.jobs.slots import ClusterSlots, JobSlots
from penstock_compactor.jobs.spark_runner import SparkRunner
from penstock_compactor.jobs.values import JobResult
from penstock_compactor.keys.work import KeyWork
from penstock_compactor.merge.work import MergeWork
from penstock_compactor.metrics import CompactorMetrics
from penstock_compactor.planning.listing import Listing
from penstock_compactor.planning.planner import FLUSHED, TOPIC, Choice, Kind, PlanLimits, choose, choose_landed

LEVELS = (0, 1, 2)

Work = Callable[[], Awaitable[JobResult]]

log = structlog.get_logger()


class LoopLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the loop that are not settings."""

    segments_per_query: int = 5_000
    topics_asked_max: int = 200  # segments of level 2 whose topics one search queries
    # The wait of a failed job's segments; doubled with each further failure.
    first_pause_s: float = 30.0
    pause_max_s: float = 3600.0
    unavailable_check_s: float = 60.0  # between two checks whether Spark can run now


class Backoff(msgspec.Struct):
    """The wait of a segment after a job that failed, or that got no lease."""

    until_s: float
    pause_s: float = 0.0  # after the last failure; 0 if no job has failed


class Compactor:
    """Plans and runs jobs of one cluster, in the slots of its process.

    `missing` returns a sentence if Spark cannot run here, else "". `set_degraded` takes a part and its failure, or "".
    """

    _slots: ClusterSlots

    def __init__(
        self,
        *,
        sequencers: SequencerClient,
        client: JobClient,
        merging: MergeWork,
        keys: KeyWork,
        spark: SparkRunner,
        plan_limits: PlanLimits,
        clock: Clock,
        metrics: CompactorMetrics,
        missing: Callable[[], str],
        set_degraded: Callable[[str, str], None],
        slots: JobSlots,
        jobs_max: int,
        interval_s: float,
        idle_s: float,
        limits: LoopLimits,
    ) -> None:
        self._sequencers = sequencers
        self._client = client
        self._merging = merging
        self._keys = keys
        self._spark = spark
        self._plan_limits = plan_limits
        self._clock = clock
        self._metrics = metrics
        self._missing = missing
        self._set_degraded = set_degraded
        self._jobs_max = jobs_max
        self._interval_s = interval_s
        self._idle_s = idle_s
        self._limits = limits
        self._listing = Listing(plan_limits.full_bytes)
        self._topics_of: dict[SegmentId, TopicId] = {}
        self._topics: list[TopicView] = []
        self._backoffs: dict[SegmentId, Backoff] = {}
        self._working: dict[asyncio.Task[None], Sequence[SegmentId]] = {}
        self._kinds: dict[asyncio.Task[None], Kind] = {}
        self._wake = asyncio.Event()  # a job ended, or the process has a slot for one more
        self._all_slots = slots
        self._is_draining = False
        self._can_use_spark = False

    async def run(self) -> None:
        """Work until cancelled."""
        self._slots = self._all_slots.join(self._wake.set)
        try:
            async with asyncio.TaskGroup() as group:
                self._can_use_spark = not self._missing()
                if not self._can_use_spark:
                    group.create_task(self._until_spark_can_run())
                while not self._is_draining:
                    await self._search(group)
                    await self._pause()
                self._slots.withdraw()
                await asyncio.Event().wait()  # the caller of `drain` ends the process
        finally:
            self._slots.leave()

    async def drain(self) -> None:
        """Start no more jobs, and cancel the running ones; their segments do not change."""
        self._is_draining = True
        self._wake.set()
        await self._cancel_jobs()

    async def _until_spark_can_run(self) -> None:
        """Wait until Spark can run here; without it, there are only small jobs."""
        missing = self._missing()
        log.warning("spark_cannot_run", reason=missing)
        while missing:
            self._set_degraded("spark", missing)
            await asyncio.sleep(self._limits.unavailable_check_s)
            missing = self._missing()
        self._set_degraded("spark", "")
        self._can_use_spark = True

    async def _search(self, group: asyncio.TaskGroup) -> None:
        self._wake.clear()
        self._slots.begin_search()
        try:
            await self._list()
            self._measure()
            landed = self._choose_landed()
            if landed is not None:
                self._begin_merge(group, landed)
            if self._can_use_spark:
                await self._begin_keys(group)
            for choice in self._choose():
                if not self._slots.reserve():
                    break
                self._begin_merge(group, choice)
            await self._spark.end_if_idle(self._idle_s)
            self._set_degraded("sequencers", "")
        except PenstockError as error:
            self._set_degraded("sequencers", str(error))
            log.warning("job_search_failed", reason=str(error))
        finally:
            self._slots.end_search()

    async def _list(self) -> None:
        row = self._listing.begin(self._clock.monotonic_s())
        while row >= 0:
            query = SegmentsQuery(0, row, [], self._limits.segments_per_query)
            row = self._listing.record(row, await self._sequencers.query("segments", query, SegmentsView))
        self._topics = await all_topics(self._sequencers)
        await self._learn_topics()

    async def _learn_topics(self) -> None:
        """Find the topics of segments of level 2, from their first extents."""
        segments = self._listing.segments
        known = {segment.segment_id for segment in segments}
        self._topics_of = {each: topic_id for each, topic_id in self._topics_of.items() if each in known}
        wanted = [each for each in segments if each.level == TOPIC and each.segment_id not in self._topics_of]
        wanted = wanted[: self._limits.topics_asked_max]
        contents = await self._client.contents_of(wanted)
        for segment, extents in zip(wanted, contents.extents, strict=True):
            if extents:
                self._topics_of[segment.segment_id] = extents[0].topic_id

    async def _begin_keys(self, group: asyncio.TaskGroup) -> None:
        """Start a job of key compaction before merges, one at a time. Otherwise merges would always use all jobs."""
        if Kind.KEYS in self._kinds.values() or self._usual_jobs >= self._jobs_max:
            return
        if not self._keys.is_search_due or not self._slots.reserve():
            return
        # The state of other segments may be minutes old. If it is wrong, the sequencers reject the lease.
        flushed = (segment for segment in self._listing.segments if segment.level == FLUSHED)
        leased = {segment.segment_id for segment in flushed if segment.leased}
        for job in (await self._keys.find_jobs(self._topics, self._busy() | leased))[:1]:
            self._begin(group, Kind.KEYS, job.segment_ids, job.size_bytes, partial(self._keys.compact, job))

    @property
    def _usual_jobs(self) -> int:
        """The number of running jobs, except those of landed segments, which are beside all others."""
        return sum(kind is not Kind.EXPRESS for kind in self._kinds.values())

    def _busy(self) -> set[SegmentId]:
        """The segments of running jobs, and of jobs that failed a short time ago."""
        now_s = self._clock.monotonic_s()
        oldest_s = now_s - self._limits.pause_max_s
        self._backoffs = {each: backoff for each, backoff in self._backoffs.items() if backoff.until_s > oldest_s}
        waiting = {each for each, backoff in self._backoffs.items() if backoff.until_s > now_s}
        return waiting.union(*self._working.values())

    def _choose_landed(self) -> Choice | None:
        """The next job of landed segments: one at a time, beside the other jobs."""
        if Kind.EXPRESS in self._kinds.values():
            return None
        return choose_landed(
            self._listing.segments, now_ms=self._listing.clock_ms, limits=self._plan_limits, busy=self._busy()
        )

    def _choose(self) -> list[Choice]:
        compacted = self._compacted()
        return choose(
            self._listing.segments,
            {each: topic_id for each, topic_id in self._topics_of.items() if topic_id not in compacted},
            now_ms=self._listing.clock_ms,
            limits=self._plan_limits,
            busy=self._busy(),
            jobs_max=self._jobs_max - self._usual_jobs,
            has_spark=self._can_use_spark,
        )

    def _compacted(self) -> set[TopicId]:
        return {topic.topic_id for topic in self._topics if is_compacted(topic.configs)}

    def _begin_merge(self, group: asyncio.TaskGroup, choice: Choice) -> None:
        work = partial(self._merging.merge, choice, self._compacted())
        if choice.kind is Kind.EXPRESS:
            work = partial(self._in_turn, work)
        self._begin(group, choice.kind, choice.segment_ids, choice.live_bytes, work)

    async def _in_turn(self, work: Work) -> JobResult:
        async with self._all_slots.landed:
            return await work()

    def _begin(
        self, group: asyncio.TaskGroup, kind: Kind, segments: Sequence[SegmentId], size_bytes: int, work: Work
    ) -> None:
        if self._is_draining:  # since this search began: `drain` cancels only the jobs that it finds
            return
        if kind is not Kind.EXPRESS:
            self._slots.begin_job()
        task = group.create_task(self._work(kind, segments, size_bytes, work))
        self._working[task] = segments
        self._kinds[task] = kind
        task.add_done_callback(self._remove)

    async def _work(self, kind: Kind, segments: Sequence[SegmentId], size_bytes: int, work: Work) -> None:
        """Run one job; its failure does not stop the compactor."""
        began_s = self._clock.monotonic_s()
        result = "cancelled"
        self._metrics.running.labels(kind).inc()
        try:
            ended = await work()
            result = "done" if ended.is_complete else "partly"
            self._topics_of.update(ended.outputs)
            self._record_end(segments, is_complete=ended.is_complete)
            seconds = self._clock.monotonic_s() - began_s
            self._metrics.job_seconds.labels(kind).observe(seconds)
            log.info(
                "job_done",
                kind=kind,
                segments=len(segments),
                bytes=size_bytes,
                runs=ended.accepted,
                rejected=ended.rejected,
                failed_outputs=len(ended.failures),
                seconds=round(seconds, 2),
            )
        except NotLeased:
            result = "not_claimed"
            self._listing.remove(set(segments))
            if kind is Kind.KEYS:
                self._wait_for_lease(segments)
        except PenstockError as error:
            result = "failed"
            self._record_end(segments, is_complete=False)
            log.warning("job_failed", kind=kind, segments=len(segments), bytes=size_bytes, reason=str(error))
        finally:
            self._metrics.running.labels(kind).dec()
            self._metrics.jobs.labels(kind, result).inc()

    def _record_end(self, segments: Sequence[SegmentId], *, is_complete: bool) -> None:
        """Let the segments of a failed job wait, longer each time. A damaged batch must not cause endless work."""
        self._listing.remove(set(segments))
        for segment_id in segments:
            if is_complete:
                self._backoffs.pop(segment_id, None)
                continue
            before_s = self._failed_pause_s(segment_id)
            limits = self._limits
            pause_s = min(before_s * 2, limits.pause_max_s) if before_s else limits.first_pause_s
            self._backoffs[segment_id] = Backoff(self._clock.monotonic_s() + pause_s, pause_s)

    def _wait_for_lease(self, segments: Sequence[SegmentId]) -> None:
        """Let these segments wait, because another compactor has a lease on one of them.

        The search for key compaction does not use the listing. Without the wait it would choose the same job again at
        once, and no other job.
        """
        until_s = self._clock.monotonic_s() + self._limits.first_pause_s
        self._backoffs.update({each: Backoff(until_s, self._failed_pause_s(each)) for each in segments})

    def _failed_pause_s(self, segment_id: SegmentId) -> float:
        backoff = self._backoffs.get(segment_id)
        return 0.0 if backoff is None else backoff.pause_s

    def _remove(self, task: "asyncio.Task[None]") -> None:
        del self._working[task]
        if self._kinds.pop(task) is not Kind.EXPRESS:
            self._slots.end_job()
        self._wake.set()

    async def _pause(self) -> None:
        """Wait until the next search is due. The end of a job, or a free slot, may mean more work now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._wake.wait()

    async def _cancel_jobs(self) -> None:
        working = list(self._working)
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)

    def _measure(self) -> None:
        for level in LEVELS:
            of_level = [segment for segment in self._listing.segments if segment.level == level]
            self._metrics.waiting_segments.labels(level).set(len(of_level))
            self._metrics.waiting_bytes.labels(level).set(sum(segment.live_bytes for segment in of_level))
            self._metrics.waiting_ranges.labels(level).set(sum(segment.live_extents for segment in of_level))
