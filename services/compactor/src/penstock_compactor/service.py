"""The compactor's loop: looks for work, and has as many jobs in work as it may."""

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
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_compactor.keys.work import KeyWork
from penstock_compactor.merge.jobs import Ended, Jobs, NotLeased
from penstock_compactor.merge.spark_runner import SparkRunner
from penstock_compactor.metrics import CompactorMetrics
from penstock_compactor.planning.listing import Listing
from penstock_compactor.planning.planner import FLUSHED, TOPIC, Choice, Kind, PlanLimits, choose

SEGMENTS_PER_QUERY = 5_000
TOPICS_ASKED_MAX = 200  # segments of level 2 whose topic is asked for in one look
FIRST_PAUSE_S = 30.0  # until segments of a failed job are tried again; doubled each time
PAUSE_MAX_S = 3600.0
UNAVAILABLE_CHECK_S = 60.0  # between two looks whether Spark can run by now
LEVELS = (0, 1, 2)

Work = Callable[[], Awaitable[Ended]]

log = structlog.get_logger()


class Setback(msgspec.Struct):
    """Segments whose job failed."""

    until_s: float
    pause_s: float


class Compactor:
    """Plans and runs jobs; `missing` says what keeps Spark from running here, and `tell` hears what is wrong."""

    def __init__(
        self,
        *,
        sequencers: SequencerClient,
        jobs: Jobs,
        keys: KeyWork,
        spark: SparkRunner,
        limits: PlanLimits,
        clock: Clock,
        metrics: CompactorMetrics,
        missing: Callable[[], str],
        tell: Callable[[str, str], None],
        jobs_max: int,
        interval_s: float,
        idle_s: float,
    ) -> None:
        self._sequencers = sequencers
        self._jobs = jobs
        self._keys = keys
        self._spark = spark
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._missing = missing
        self._tell = tell
        self._jobs_max = jobs_max
        self._interval_s = interval_s
        self._idle_s = idle_s
        self._listing = Listing(limits.full_bytes)
        self._topics_of: dict[SegmentId, TopicId] = {}
        self._topics: list[TopicView] = []
        self._setbacks: dict[SegmentId, Setback] = {}
        self._working: dict[asyncio.Task[None], Sequence[SegmentId]] = {}
        self._kinds: dict[asyncio.Task[None], Kind] = {}
        self._something_ended = asyncio.Event()
        self._is_draining = False

    async def run(self) -> None:
        """Work until cancelled."""
        await self._until_spark_can_run()
        async with asyncio.TaskGroup() as group:
            while not self._is_draining:
                await self._look(group)
                await self._pause()
            await asyncio.Event().wait()  # whoever drained us says when it is over

    async def drain(self) -> None:
        """Begin no more jobs, and give up those in work: their segments stay as they are, for others to merge."""
        self._is_draining = True
        self._something_ended.set()
        await self._give_up()

    async def _until_spark_can_run(self) -> None:
        missing = self._missing()
        if missing:
            log.warning("spark_cannot_run", reason=missing)
        while missing:
            self._tell("spark", missing)
            await asyncio.sleep(UNAVAILABLE_CHECK_S)
            missing = self._missing()
        self._tell("spark", "")

    async def _look(self, group: asyncio.TaskGroup) -> None:
        try:
            await self._list()
            self._measure()
            await self._begin_keys(group)
            for choice in self._choose():
                work = partial(self._jobs.merge, choice, self._compacted())
                self._begin(group, choice.kind, choice.segment_ids, choice.live_bytes, work)
            await self._spark.end_if_idle(self._idle_s)
            self._tell("sequencers", "")
        except PenstockError as error:
            self._tell("sequencers", str(error))
            log.warning("look_for_work_failed", reason=str(error))

    async def _list(self) -> None:
        row = self._listing.begin(self._clock.monotonic_s())
        while row >= 0:
            query = SegmentsQuery(0, row, [], SEGMENTS_PER_QUERY)
            row = self._listing.note(row, await self._sequencers.query("segments", query, SegmentsView))
        self._topics = (await self._sequencers.query("metadata", MetadataQuery(0, None), MetadataView)).topics
        await self._learn_topics()

    async def _learn_topics(self) -> None:
        """Of what topic segments of level 2 are: their first extent tells."""
        segments = self._listing.segments
        known = {segment.segment_id for segment in segments}
        self._topics_of = {each: topic_id for each, topic_id in self._topics_of.items() if each in known}
        wanted = [each for each in segments if each.level == TOPIC and each.segment_id not in self._topics_of]
        wanted = wanted[:TOPICS_ASKED_MAX]
        contents = await self._jobs.contents_of(wanted)
        for segment, extents in zip(wanted, contents.extents, strict=True):
            if extents:
                self._topics_of[segment.segment_id] = extents[0].topic_id

    async def _begin_keys(self, group: asyncio.TaskGroup) -> None:
        """Key compaction goes before merging, one job at a time: else there would never be room for it."""
        if Kind.KEYS in self._kinds.values() or len(self._working) >= self._jobs_max:
            return
        # What is told of the others may be minutes old: where that matters the claim is refused.
        flushed = (segment for segment in self._listing.segments if segment.level == FLUSHED)
        leased = {segment.segment_id for segment in flushed if segment.leased}
        for job in (await self._keys.look(self._topics, self._busy() | leased))[:1]:
            self._begin(group, Kind.KEYS, job.segment_ids, job.size_bytes, partial(self._keys.compact, job))

    def _busy(self) -> set[SegmentId]:
        """Segments of jobs in work, and those whose job failed a moment ago."""
        now_s = self._clock.monotonic_s()
        self._setbacks = {
            each: setback for each, setback in self._setbacks.items() if setback.until_s > now_s - PAUSE_MAX_S
        }
        waiting = {each for each, setback in self._setbacks.items() if setback.until_s > now_s}
        return waiting.union(*self._working.values())

    def _choose(self) -> list[Choice]:
        compacted = self._compacted()
        return choose(
            self._listing.segments,
            {each: topic_id for each, topic_id in self._topics_of.items() if topic_id not in compacted},
            now_ms=self._listing.clock_ms,
            limits=self._limits,
            busy=self._busy(),
            jobs_max=self._jobs_max - len(self._working),
        )

    def _compacted(self) -> set[TopicId]:
        return {topic.topic_id for topic in self._topics if is_compacted(topic.configs)}

    def _begin(
        self, group: asyncio.TaskGroup, kind: Kind, segments: Sequence[SegmentId], size_bytes: int, work: Work
    ) -> None:
        task = group.create_task(self._work(kind, segments, size_bytes, work))
        self._working[task] = segments
        self._kinds[task] = kind
        task.add_done_callback(self._ended)

    async def _work(self, kind: Kind, segments: Sequence[SegmentId], size_bytes: int, work: Work) -> None:
        """One job, whose end is noted and whose failure is no reason to stop."""
        began_s = self._clock.monotonic_s()
        result = "cancelled"
        self._metrics.running.labels(kind).inc()
        try:
            ended = await work()
            result = "done" if ended.is_good else "partly"
            self._topics_of.update(ended.outputs)
            self._after(segments, ended.is_good)
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
        except PenstockError as error:
            result = "failed"
            self._after(segments, False)
            log.warning("job_failed", kind=kind, segments=len(segments), bytes=size_bytes, reason=str(error))
        finally:
            self._metrics.running.labels(kind).dec()
            self._metrics.jobs.labels(kind, result).inc()

    def _after(self, segments: Sequence[SegmentId], is_good: bool) -> None:
        """Segments of a job that failed wait, longer each time, so that one damaged batch does not keep us busy."""
        self._listing.remove(set(segments))
        for segment_id in segments:
            if is_good:
                self._setbacks.pop(segment_id, None)
                continue
            before = self._setbacks.get(segment_id)
            pause_s = min(before.pause_s * 2, PAUSE_MAX_S) if before is not None else FIRST_PAUSE_S
            self._setbacks[segment_id] = Setback(self._clock.monotonic_s() + pause_s, pause_s)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._working[task], self._kinds[task]
        self._something_ended.set()

    async def _pause(self) -> None:
        """Until it is time to look again; at once where a job ended, as there may be more to do."""
        self._something_ended.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._something_ended.wait()

    async def _give_up(self) -> None:
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
