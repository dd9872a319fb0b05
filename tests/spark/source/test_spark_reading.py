"""A task reads every wanted record of its split once and in order, from flushed and compacted segments."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.errors import Corrupt
from penstock.kafkawire.records import Record, build_batch
from penstock.objectstore.errors import NotFound
from penstock.segment.compacted import Place
from penstock.segment.keys import segment_key
from penstock.spark.source.columns import Columns
from penstock.spark.source.planning import first_at
from penstock.spark.source.reading import Range, read_split
from penstock.spark.source.splits import Run, Split, Wanted, plan_splits

pytestmark = pytest.mark.spark

TOPIC_ID = bytes(16)
HEAD = b"#" * 100
Row = tuple[int, int]  # partition, offset


class Bucket:
    """Segments built for a test, streamed as for a task; records the GETs."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.places: dict[tuple[bytes, int], list[Place]] = {}
        self.extents: dict[int, list[Extent]] = defaultdict(list)
        self.rows: list[Row] = []
        self.ranges: list[Range] = []
        self.fragment_bytes = 1000

    def add(self, level: int, runs: Sequence[tuple[int, list[list[int]]]]) -> None:
        """Add a segment: for each partition its batches, each with offset deltas with gaps, as after key compaction."""
        ref = SegmentRef((len(self.objects) + 1).to_bytes(16, "big"), level, 0, "", "")
        data = bytearray(HEAD)
        for partition, batches in runs:
            position = len(data)
            offset = first = self.end(partition)
            places = []
            for deltas in batches:
                kept = deltas if level else list(range(len(deltas)))
                base = offset if level else 4711  # a producer may write any base offset
                places.append(Place(offset, len(data)))
                data += build_batch([Record(delta, 1000 + offset + delta, b"k") for delta in kept], base_offset=base)
                self.rows += [(partition, offset + delta) for delta in kept]
                offset += kept[-1] + 1
            extent = Extent(first, offset - 1, ref, position, len(data) - position, 1000 + offset - 1)
            self.extents[partition].append(extent)
            self.places[ref.segment_id, position] = places
        self.objects[segment_key("", "c", level, ref.segment_id)] = bytes(data)

    def end(self, partition: int) -> int:
        """The offset after the partition's last one."""
        return self.extents[partition][-1].last_offset + 1 if self.extents[partition] else 0

    def stream(self, ranges: Sequence[Range]) -> Iterator[memoryview]:
        """The bytes of the ranges in fragments."""
        for key, position, length in ranges:
            self.ranges.append((key, position, length))
            if key not in self.objects:
                raise NotFound(f"no object: {key}")
            data = memoryview(self.objects[key])[position : position + length]
            for start in range(0, length, self.fragment_bytes):
                yield data[start : start + self.fragment_bytes]

    def wanted(self, first: int, end: int) -> list[Wanted]:
        """These offsets of every partition."""
        return [
            Wanted("t", TOPIC_ID, partition, first, min(end, self.end(partition)), extents)
            for partition, extents in sorted(self.extents.items())
        ]


def rows_of(batches: Iterator) -> list[Row]:
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


gaps = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(sorted)
runs = st.dictionaries(st.integers(0, 2), st.lists(gaps, min_size=1, max_size=6), min_size=1)
segments = st.lists(st.tuples(st.integers(0, 2), runs), min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(segments, st.integers(0, 40), st.integers(0, 60), st.sampled_from([7, 61, 1000, 10**6]), st.integers(100, 3000))
def test_every_wanted_record_is_read_once_and_in_order(
    many: list, first: int, count: int, fragment_bytes: int, split_bytes: int
) -> None:
    bucket = Bucket()
    bucket.fragment_bytes = fragment_bytes
    for level, each in many:
        bucket.add(level, sorted(each.items()))
    wanted = bucket.wanted(first, first + count)
    compacted = {extent.segment.segment_id for each in wanted for extent in each.extents if extent.segment.level}
    cut_places = {key: places for key, places in bucket.places.items() if key[0] in compacted}
    read: list[Row] = []
    for split in plan_splits(wanted, "c", split_bytes, places=cut_places):
        read += rows_of(read_split(split, Columns(("partition", "offset"), group_bytes=200), bucket.stream))
    expected = [row for row in bucket.rows if first <= row[1] < first + count]
    assert sorted(read) == sorted(expected)
    for partition in bucket.extents:
        assert [row for row in read if row[0] == partition] == sorted(row for row in expected if row[0] == partition)


def test_batches_before_a_time_are_skipped() -> None:
    bucket = Bucket()
    bucket.add(0, [(0, [[0]] * 50)])
    [split] = plan_splits(bucket.wanted(0, 50), "c", 10**9, timestamp_min_ms=1030)
    assert rows_of(read_split(split, Columns(("partition", "offset")), bucket.stream)) == [
        (0, n) for n in range(30, 50)
    ]


def test_after_a_compaction_the_rest_of_a_split_is_planned_again() -> None:
    old, new = Bucket(), Bucket()
    for _ in range(6):
        old.add(0, [(0, [[0]] * 10), (1, [[0]] * 10)])
    new.add(1, [(0, [[0]] * 60), (1, [[0]] * 60)])
    plans: list[Split] = []
    [split] = plan_splits(old.wanted(5, 55), "c", 10**9)
    for key in sorted(old.objects)[3:]:
        del old.objects[key]

    def stream(ranges: Sequence[Range]) -> Iterator[memoryview]:
        return (new if plans else old).stream(ranges)

    def replan(rest: Split) -> Split:
        plans.append(rest)
        left = {run.partition: 55 for stretch in rest.stretches for run in stretch.runs}
        for run in (run for stretch in rest.stretches for run in stretch.runs):
            left[run.partition] = min(left[run.partition], run.from_offset)
        again = [
            Wanted("t", TOPIC_ID, partition, first, 55, new.extents[partition]) for partition, first in left.items()
        ]
        [split] = plan_splits(again, "c", 10**9)
        return split

    read = rows_of(read_split(split, Columns(("partition", "offset")), stream, replan))
    assert sorted(read) == [(partition, offset) for partition in (0, 1) for offset in range(5, 55)]
    assert len(plans) == 1


def test_segments_missing_in_the_new_plan_too_are_an_error() -> None:
    bucket = Bucket()
    bucket.add(0, [(0, [[0]])])
    [split] = plan_splits(bucket.wanted(0, 1), "c", 10**9)
    bucket.objects.clear()
    with pytest.raises(NotFound):
        list(read_split(split, Columns(), bucket.stream, lambda rest: rest))
    assert len(bucket.ranges) == 2


@pytest.mark.parametrize("damage", ["length", "end", "missing"])
def test_bytes_that_do_not_match_the_extent_are_detected(damage: str) -> None:
    bucket = Bucket()
    bucket.add(0, [(0, [[0, 1], [0, 1]])])
    [extent] = bucket.extents[0]
    run = Run("t", TOPIC_ID, 0, False, 0, extent.last_offset, extent.position, extent.length, 0, 4)
    [(key, data)] = bucket.objects.items()
    if damage == "length":
        bucket.objects[key] = data[: extent.position + 8] + b"\xff" + data[extent.position + 9 :]
    if damage == "missing":
        bucket.objects[key] = data[:-10]
    if damage == "end":
        run = Run("t", TOPIC_ID, 0, False, 0, extent.last_offset + 1, extent.position, extent.length, 0, 5)
    wanted = Wanted(
        "t", TOPIC_ID, 0, 0, run.to_offset, [Extent(0, run.last_offset, extent.segment, run.position, run.length, 0)]
    )
    [split] = plan_splits([wanted], "c", 10**9)
    with pytest.raises(Corrupt):
        list(read_split(split, Columns(), bucket.stream))


def test_the_first_record_at_a_time_is_found_within_its_batch() -> None:
    times = [5, 9, 7, 12, 11, 30]
    data = build_batch([Record(i, at) for i, at in enumerate(times[:3])])
    data += build_batch([Record(i, at) for i, at in enumerate(times[3:])])
    run = Run("", b"", 0, False, 100, 105, 0, len(data), 0, 2**62)
    found = {at: first_at(run, data, at) for at in (0, 6, 8, 10, 13, 30, 31)}
    assert found == {0: 100, 6: 101, 8: 101, 10: 103, 13: 105, 30: 105, 31: None}
