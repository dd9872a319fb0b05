"""Groups the extents of partitions into splits for tasks: stretches of segments, each read by one GET. Pure."""

import heapq
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID, AbortedTransaction, Extent, SegmentRef
from penstock.contracts.ids import SegmentId, TopicId
from penstock.segment.compacted import Place
from penstock.segment.keys import segment_key

NO_PREFIX = ""  # the store's URL already has the prefix
# Only the wanted part of a compacted run above this size is read. A smaller run is read sooner than its offset index.
CUT_BYTES_MIN = 2 * 1024 * 1024

# The places in compacted runs where a read can begin, by the run's segment and first byte.
Places = Mapping[tuple[SegmentId, int], Sequence[Place]]


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An extent, or a part of one; the offsets from `from_offset` to before `to_offset` are wanted."""

    topic: str
    topic_id: TopicId
    partition: int
    has_offsets: bool  # whether its batches have offsets; else these follow from `base_offset` and record counts
    base_offset: int
    last_offset: int
    position: int
    length: int
    from_offset: int
    to_offset: int


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive runs of a segment, read by one GET."""

    key: str
    runs: list[Run]

    @property
    def position(self) -> int:
        """The position of the first byte."""
        return self.runs[0].position

    @property
    def length(self) -> int:
        """The number of bytes in all runs."""
        return sum(run.length for run in self.runs)


class LogAborted(msgspec.Struct, frozen=True, array_like=True):
    """The aborted transactions of one partition with records in a split."""

    topic_id: TopicId
    partition: int
    transactions: list[AbortedTransaction]


class Split(msgspec.Struct, frozen=True, array_like=True):
    """The read of one task, in this order; records before `timestamp_min_ms` are not needed.

    A read of committed records leaves out the `aborted` transactions. For other reads that list is empty.
    """

    stretches: list[Stretch]
    timestamp_min_ms: int | None = None
    read_committed: bool = True
    aborted: list[LogAborted] = []

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read from the store."""
        return sum(stretch.length for stretch in self.stretches)


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """The offsets to read of one partition, their extents in order, and the aborted transactions in these."""

    topic: str
    topic_id: TopicId
    partition: int
    from_offset: int
    to_offset: int
    extents: list[Extent]
    aborted: list[AbortedTransaction] = []  # all with records in the extents


def plan_splits(
    wanted: Sequence[Wanted],
    cluster: str,
    split_bytes: int,
    *,
    places: Places | None = None,
    timestamp_min_ms: int | None = None,
    read_committed: bool = True,
) -> list[Split]:
    """Splits of about `split_bytes`; the runs of a partition are in the order of their offsets.

    This visits segments from the oldest on, for all partitions together. So neighbouring runs of several partitions
    become one stretch. Runs are cut only at `places`.
    """
    splits: list[list[Stretch]] = []
    stretches: list[Stretch] = []
    size = 0
    queues = [_runs(each, places or {}, split_bytes, timestamp_min_ms) for each in wanted]
    for segment_level, segment_id, runs in _by_segment(queues):
        key = segment_key(NO_PREFIX, cluster, segment_level, segment_id)
        for stretch in _contiguous(key, sorted(runs, key=lambda run: run.position), split_bytes):
            if stretches and size + stretch.length > split_bytes:
                splits.append(stretches)
                stretches, size = [], 0
            stretches.append(stretch)
            size += stretch.length
    if stretches:
        splits.append(stretches)
    logs = [each for each in wanted if each.aborted] if read_committed else []
    return [Split(each, timestamp_min_ms, read_committed, _aborted_in(each, logs)) for each in splits]


def _aborted_in(stretches: Sequence[Stretch], logs: Sequence[Wanted]) -> list[LogAborted]:
    """The aborted transactions of these logs with records in the stretches of a split."""
    spans: dict[tuple[TopicId, int], tuple[int, int]] = {}
    for run in (run for stretch in stretches for run in stretch.runs):
        first, last = spans.get((run.topic_id, run.partition), (run.base_offset, run.last_offset))
        spans[run.topic_id, run.partition] = min(first, run.base_offset), max(last, run.last_offset)
    found = []
    for each in logs:
        first, last = spans.get((each.topic_id, each.partition), (0, -1))
        among = [one for one in each.aborted if one.first_offset <= last and one.last_offset >= first]
        if among:
            found.append(LogAborted(each.topic_id, each.partition, among))
    return found


def segments_to_cut(
    wanted: Sequence[Wanted], split_bytes: int, timestamp_min_ms: int | None = None
) -> list[SegmentRef]:
    """The compacted segments whose offset indexes save much: without them, a run would be read far beyond its need."""
    found = {}
    for each in wanted:
        for extent in _extents(each, timestamp_min_ms):
            is_partly = extent.base_offset < each.from_offset or extent.last_offset >= each.to_offset
            least = CUT_BYTES_MIN if is_partly else split_bytes + CUT_BYTES_MIN
            if extent.segment.level > 0 and extent.length > least:
                found[extent.segment.segment_id] = extent.segment
    return list(found.values())


_Queue = list[tuple[int, SegmentId, Run]]  # with level and id of the run's segment


def _by_segment(queues: Sequence[_Queue]) -> Iterable[tuple[int, SegmentId, list[Run]]]:
    """The segments of all queues from the oldest on, each with its runs of all partitions."""
    following = [(queue[0][1], number, 0) for number, queue in enumerate(queues) if queue]
    heapq.heapify(following)
    while following:
        segment_id = following[0][0]
        level = 0
        runs: list[Run] = []
        while following and following[0][0] == segment_id:
            _, number, place = heapq.heappop(following)
            level, _, run = queues[number][place]
            runs.append(run)
            if place + 1 < len(queues[number]):
                heapq.heappush(following, (queues[number][place + 1][1], number, place + 1))
        yield level, segment_id, runs


def _runs(wanted: Wanted, places: Places, split_bytes: int, timestamp_min_ms: int | None) -> _Queue:
    queue = []
    next_offset = wanted.from_offset
    for extent in _extents(wanted, timestamp_min_ms):
        # A compaction between two queries may merge extents, so that one crosses the end of the first answer.
        if extent.last_offset < next_offset:
            continue
        segment = extent.segment
        run = _run(wanted, extent, next_offset)
        next_offset = run.to_offset
        known = places.get((segment.segment_id, extent.position))
        parts = _parts(run, known, split_bytes) if known else [run]
        queue += [(segment.level, segment.segment_id, part) for part in parts]
    return queue


def _extents(wanted: Wanted, timestamp_min_ms: int | None) -> list[Extent]:
    """The extents to read; a marker without bytes is left out, because it has no records."""
    return [
        extent
        for extent in wanted.extents
        if extent.segment.segment_id != NO_SEGMENT_ID
        and extent.last_offset >= wanted.from_offset
        and extent.base_offset < wanted.to_offset
        and (timestamp_min_ms is None or extent.max_timestamp >= timestamp_min_ms)
    ]


def _run(wanted: Wanted, extent: Extent, next_offset: int) -> Run:
    return Run(
        wanted.topic,
        wanted.topic_id,
        wanted.partition,
        extent.segment.level > 0,
        extent.base_offset,
        extent.last_offset,
        extent.position,
        extent.length,
        max(next_offset, extent.base_offset),
        min(wanted.to_offset, extent.last_offset + 1),
    )


def _parts(run: Run, places: Sequence[Place], split_bytes: int) -> list[Run]:
    """The wanted part of a run, from place to place, in parts of about `split_bytes`."""
    first = max((number for number, place in enumerate(places) if place.offset <= run.from_offset), default=0)
    begins = [Place(run.base_offset, run.position) if first == 0 else places[first]]
    end = Place(run.last_offset + 1, run.position + run.length)
    for place in places[first + 1 :]:
        if place.offset >= run.to_offset:
            end = place
            break
        if place.position - begins[-1].position >= split_bytes:
            begins.append(place)
    return [_part(run, begin, next_begin) for begin, next_begin in zip(begins, [*begins[1:], end], strict=True)]


def _part(run: Run, begin: Place, end: Place) -> Run:
    return msgspec.structs.replace(
        run,
        base_offset=begin.offset,
        last_offset=end.offset - 1,
        position=begin.position,
        length=end.position - begin.position,
        from_offset=max(run.from_offset, begin.offset),
        to_offset=min(run.to_offset, end.offset),
    )


def _contiguous(key: str, runs: Sequence[Run], split_bytes: int) -> Iterable[Stretch]:
    """Stretches of neighbouring runs up to `split_bytes`, or of one larger run."""
    together: list[Run] = []
    size = 0
    for run in runs:
        is_next = together and together[-1].position + together[-1].length == run.position
        if together and (not is_next or size + run.length > split_bytes):
            yield Stretch(key, together)
            together, size = [], 0
        together.append(run)
        size += run.length
    if together:
        yield Stretch(key, together)


def limit_bytes(wanted: Sequence[Wanted], bytes_max: int) -> dict[tuple[str, int], int]:
    """End offsets for a read of about `bytes_max`; the quota of a partition is in proportion to its waiting bytes.

    If a quota ends within an extent, the end offset is in proportion to the bytes. At least one offset is read in all,
    so that a stream always advances.
    """
    sizes = [sum(_wanted_bytes(each, extent) for extent in each.extents) for each in wanted]
    total = sum(sizes)
    ends = {}
    for each, size in zip(wanted, sizes, strict=True):
        quota = size if total <= bytes_max else bytes_max * size // total
        ends[each.topic, each.partition] = _end_within(each, quota) if total > bytes_max else each.to_offset
    if wanted and all(ends[each.topic, each.partition] <= each.from_offset for each in wanted):
        first = max(wanted, key=lambda each: each.to_offset - each.from_offset)
        ends[first.topic, first.partition] = min(first.to_offset, first.from_offset + 1)
    return ends


def _wanted_bytes(wanted: Wanted, extent: Extent) -> int:
    offsets = min(wanted.to_offset, extent.last_offset + 1) - max(wanted.from_offset, extent.base_offset)
    return extent.length * max(0, offsets) // (extent.last_offset - extent.base_offset + 1)


def _end_within(wanted: Wanted, quota: int) -> int:
    end = wanted.from_offset
    for extent in wanted.extents:
        size = _wanted_bytes(wanted, extent)
        begin = max(wanted.from_offset, extent.base_offset)
        extent_end = min(wanted.to_offset, extent.last_offset + 1)
        if size > quota:
            return max(end, begin + (extent_end - begin) * quota // size)
        quota -= size
        end = max(end, extent_end)
    return end
