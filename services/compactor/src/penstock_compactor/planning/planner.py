"""Chooses the segments to merge next: from a listing of segments to jobs, each a list of segments. Pure.

Landed segments (ADR 0045, 0056) leave the landing store after a few seconds, also a single one: `choose_landed`. They
are many and often small, and their bytes cost more there.

All other segments wait in queues. Flushed segments (level 0) have one queue. Segments of level 1, with many topics,
have one queue per size class. Segments of level 2, with one topic, have one per topic and size class. A class is
sixteen times the class below it. A queue is merged when it has enough segments for a job. So a record is written once
by its flusher, once to level 1, and then about once per class: three to five times in all, also for a slow topic.

After an hour in level 1, segments are merged earlier, if each byte gets into a segment twice as large. That writes
few bytes a few more times. A single segment waits for another one.

Among due queues, the cost of reads decides: the number of ranges that a full catch-up read then saves, per written
byte. Flushed segments come first, because their reads cost most.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from penstock.contracts.ids import SegmentId, TopicId, is_landed, segment_born_ms
from penstock.contracts.queries.compaction import SegmentView

MIB = 1024 * 1024
MINUTE_MS = 60_000
FLUSHED, MIXED, TOPIC = 0, 1, 2  # the levels
CLASS_BASE_BYTES = 16 * 1024
CLASS_FACTOR = 16


class Kind(StrEnum):
    """The kinds of jobs."""

    FLUSHED = "flushed"  # level 0 to 1
    MIXED = "mixed"  # level 1 to 2, one output per topic; small topics stay together in level 1
    TOPIC = "topic"  # level 2 to larger segments
    KEYS = "keys"  # key compaction of one topic
    EXPRESS = "express"  # landed segments of level 0 to 1


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that make a queue due, and the limits of a job."""

    flushed_count: int = 32
    flushed_bytes: int = 256 * MIB
    flushed_age_ms: int = 2 * MINUTE_MS
    flushed_rest_ms: int = 15_000  # a queue with `flushed_count` segments waits for more: a job costs more than they do
    express_age_ms: int = 20_000
    class_count: int = 16
    class_bytes: int = 4 * 1024 * MIB  # at 5 MB/s a job ends within the 15 minutes that an output may take
    class_age_ms: int = 60 * MINUTE_MS
    full_bytes: int = 512 * MIB  # a segment with so many live bytes is not merged again
    job_segments_max: int = 1_000
    job_extents_max: int = 20_000  # replaced by one command
    output_bytes_max: int = 1024 * MIB
    local_bytes_max: int = 128 * MIB  # a job with more runs on Spark, others in a thread of the compactor
    topic_bytes_min: int = 4 * MIB  # a smaller topic gets no separate segment: requests would cost more than bytes


class Choice(msgspec.Struct, frozen=True):
    """Segments to merge together, in the order of their commits."""

    kind: Kind
    segments: list[SegmentView]

    @property
    def segment_ids(self) -> list[SegmentId]:
        """The segments to lease."""
        return [segment.segment_id for segment in self.segments]

    @property
    def live_bytes(self) -> int:
        """The approximate number of bytes to read."""
        return sum(segment.live_bytes for segment in self.segments)

    def needs_spark(self, limits: PlanLimits) -> bool:
        """Whether the job runs on Spark. Small jobs do not: its start costs more than they do."""
        return self.kind is not Kind.EXPRESS and self.live_bytes > limits.local_bytes_max

    @property
    def ranges_saved(self) -> int:
        """The number of ranges that a full catch-up read saves afterwards, if one range per partition is left."""
        extents = [segment.live_extents for segment in self.segments]
        return sum(extents) - max(extents)


def choose(
    segments: Iterable[SegmentView],
    topics: Mapping[SegmentId, TopicId],
    *,
    now_ms: int,
    limits: PlanLimits,
    busy: Collection[SegmentId] = (),
    jobs_max: int = 1,
    has_spark: bool = True,
) -> list[Choice]:
    """At most `jobs_max` jobs, the best first; no segment is in two jobs.

    `topics` has the topic of segments of level 2; a segment that is not in it waits. `busy` has segments of other jobs,
    in addition to the leased ones. `now_ms` is the journal clock. Without `has_spark`, only jobs that need none.
    """
    queues: dict[tuple[Kind, TopicId, int], list[SegmentView]] = {}
    for segment in sorted(segments, key=_row):
        if is_unmoved(segment) or not _can_be_merged(segment) or segment.segment_id in busy:
            continue
        queue = _queue_of(segment, topics, limits)
        if queue is not None:
            queues.setdefault(queue, []).append(segment)
    flushed = [
        job
        for queue, waiting in queues.items()
        if queue[0] is Kind.FLUSHED
        for job in _flushed(waiting, now_ms, limits)
    ]
    others = [
        job
        for (kind, _, _), waiting in queues.items()
        if kind is not Kind.FLUSHED
        for job in _of_class(kind, waiting, now_ms, limits)
    ]
    others.sort(key=_worth, reverse=True)
    jobs = [job for job in (*flushed, *others) if has_spark or not job.needs_spark(limits)]
    return jobs[:jobs_max]


def choose_landed(
    segments: Iterable[SegmentView], *, now_ms: int, limits: PlanLimits, busy: Collection[SegmentId] = ()
) -> Choice | None:
    """The oldest due job of landed segments; the parameters are those of `choose`."""
    waiting = [
        segment
        for segment in sorted(segments, key=_row)
        if is_unmoved(segment) and _can_be_merged(segment) and segment.segment_id not in busy
    ]
    for group, is_full in _groups(waiting, limits.flushed_bytes, limits, least=1):
        if is_full or _age_ms(group, now_ms) >= limits.express_age_ms:
            return Choice(Kind.EXPRESS, group)
    return None


def is_unmoved(segment: SegmentView) -> bool:
    """Whether the segment is in the landing store."""
    return segment.level == FLUSHED and is_landed(segment.segment_id)


def _can_be_merged(segment: SegmentView) -> bool:
    return not segment.leased and segment.dead_since_ms < 0 and segment.live_extents > 0


def size_class(size_bytes: int) -> int:
    """The size class: class 0 is below 16 KiB, and each class is sixteen times the class below it."""
    number, bound = 0, CLASS_BASE_BYTES
    while size_bytes >= bound:
        number, bound = number + 1, bound * CLASS_FACTOR
    return number


def _queue_of(
    segment: SegmentView, topics: Mapping[SegmentId, TopicId], limits: PlanLimits
) -> tuple[Kind, TopicId, int] | None:
    if segment.level == FLUSHED:
        return Kind.FLUSHED, b"", 0
    if segment.live_bytes >= limits.full_bytes:
        return None
    number = size_class(segment.live_bytes)
    if segment.level == MIXED:
        return Kind.MIXED, b"", number
    topic_id = topics.get(segment.segment_id)
    return None if topic_id is None else (Kind.TOPIC, topic_id, number)


def _flushed(waiting: Sequence[SegmentView], now_ms: int, limits: PlanLimits) -> list[Choice]:
    """The due jobs of flushed segments, the oldest first."""
    return [
        Choice(Kind.FLUSHED, group)
        for group, is_full in _groups(waiting, limits.flushed_bytes, limits)
        if is_full or _age_ms(group, now_ms) >= _wait_ms(group, limits)
    ]


def _wait_ms(group: Sequence[SegmentView], limits: PlanLimits) -> int:
    return limits.flushed_rest_ms if len(group) >= limits.flushed_count else limits.flushed_age_ms


def _of_class(kind: Kind, waiting: Sequence[SegmentView], now_ms: int, limits: PlanLimits) -> list[Choice]:
    return [
        Choice(kind, group)
        for group, is_full in _groups(waiting, limits.class_bytes, limits)
        if (is_full and _is_worth_it(group, limits))
        or len(group) >= limits.class_count
        or (kind is Kind.MIXED and _age_ms(group, now_ms) >= limits.class_age_ms and _doubles(group))
    ]


def _groups(
    waiting: Sequence[SegmentView], bytes_max: int, limits: PlanLimits, *, least: int = 2
) -> Iterator[tuple[list[SegmentView], bool]]:
    """Groups of `least` or more waiting segments, in order, each within a job's limits; and whether it is full."""
    group: list[SegmentView] = []
    size = extents = 0
    for segment in waiting:
        is_over = size + segment.live_bytes > bytes_max or extents + segment.live_extents > limits.job_extents_max
        if len(group) >= least and (is_over or len(group) >= limits.job_segments_max):
            yield group, True
            group, size, extents = [], 0, 0
        group.append(segment)
        size += segment.live_bytes
        extents += segment.live_extents
    if len(group) >= least:
        yield group, size >= bytes_max


def _age_ms(group: Sequence[SegmentView], now_ms: int) -> int:
    return now_ms - min(segment_born_ms(segment.segment_id) for segment in group)


def _doubles(group: Sequence[SegmentView]) -> bool:
    """Whether each byte gets into a segment at least twice as large as its present one."""
    sizes = [segment.live_bytes for segment in group]
    return 2 * max(sizes) <= sum(sizes)


def _is_worth_it(group: Sequence[SegmentView], limits: PlanLimits) -> bool:
    """Whether a merge of few segments makes progress: it must have one output, and not as many outputs as inputs.

    Otherwise segments with too many partitions for one command would be written again for ever.
    """
    return sum(segment.live_extents for segment in group) <= limits.job_extents_max and _doubles(group)


def _worth(choice: Choice) -> float:
    return choice.ranges_saved / (choice.live_bytes + MIB)


def _row(segment: SegmentView) -> int:
    return segment.row
