"""The splits of tasks, from extents: all wanted offsets and few others, in order, in few GETs."""

from collections import defaultdict

from hypothesis import given, settings, strategies as st

from penstock.contracts.batches import Extent, SegmentRef
from penstock.segment.compacted import Place
from penstock.spark.source.splits import Run, Split, Wanted, limit_bytes, plan_splits, segments_to_cut

MIB = 1024 * 1024
TOPIC_ID = bytes(16)


def segment(number: int, level: int = 0) -> SegmentRef:
    return SegmentRef((number + 1).to_bytes(16, "big"), level, 100 * MIB, "", "")


def wanted(partition: int, first: int, end: int, extents: list[Extent]) -> Wanted:
    return Wanted("t", TOPIC_ID, partition, first, end, extents)


def runs_of(splits: list[Split]) -> list[Run]:
    return [run for split in splits for stretch in split.stretches for run in stretch.runs]


def test_neighbouring_partitions_of_a_segment_are_one_get() -> None:
    many = [
        wanted(p, 0, 30, [Extent(10 * s, 10 * s + 9, segment(s), 100 + 50 * p, 50, 0) for s in range(3)])
        for p in range(16)
    ]
    [split] = plan_splits(many, "c", 64 * MIB)
    assert [(stretch.position, stretch.length) for stretch in split.stretches] == [(100, 16 * 50)] * 3
    assert split.size_bytes == 3 * 16 * 50


def test_distant_runs_of_a_segment_are_separate_gets() -> None:
    two = [wanted(p, 0, 10, [Extent(0, 9, segment(0), 1000 * p, 50, 0)]) for p in range(2)]
    [split] = plan_splits(two, "c", 64 * MIB)
    assert [(stretch.position, stretch.length) for stretch in split.stretches] == [(0, 50), (1000, 50)]


def test_extents_without_wanted_offsets_or_too_old_are_not_read() -> None:
    extents = [Extent(10 * s, 10 * s + 9, segment(s), 0, 50, 1000 * s) for s in range(10)]
    splits = plan_splits([wanted(0, 25, 61, extents)], "c", 64 * MIB, timestamp_min_ms=4000)
    assert [(run.base_offset, run.from_offset, run.to_offset) for run in runs_of(splits)] == [
        (40, 40, 50),
        (50, 50, 60),
        (60, 60, 61),
    ]


def test_splits_are_about_as_large_as_requested() -> None:
    extents = [Extent(10 * s, 10 * s + 9, segment(s), 0, 5 * MIB, 0) for s in range(40)]
    splits = plan_splits([wanted(0, 0, 400, extents)], "c", 16 * MIB)
    assert [split.size_bytes for split in splits] == [15 * MIB] * 13 + [5 * MIB]


def test_a_large_compacted_run_is_cut_at_its_places() -> None:
    extent = Extent(1000, 1999, segment(1, level=2), 4096, 100 * MIB, 0)
    places = [Place(1000 + 10 * n, 4096 + n * MIB) for n in range(100)]
    one = wanted(0, 1255, 1645, [extent])
    assert segments_to_cut([one], 16 * MIB) == [extent.segment]
    splits = plan_splits([one], "c", 16 * MIB, places={(extent.segment.segment_id, 4096): places})
    assert [split.size_bytes for split in splits] == [16 * MIB, 16 * MIB, 8 * MIB]
    runs = runs_of(splits)
    assert [(run.base_offset, run.last_offset) for run in runs] == [(1250, 1409), (1410, 1569), (1570, 1649)]
    assert [(run.from_offset, run.to_offset) for run in runs] == [(1255, 1410), (1410, 1570), (1570, 1645)]
    assert [run.position for run in runs] == [4096 + 25 * MIB, 4096 + 41 * MIB, 4096 + 57 * MIB]
    assert all(run.has_offsets for run in runs)


def test_only_offset_indexes_that_save_reads_are_used() -> None:
    small = Extent(0, 99, segment(1, level=1), 0, 1 * MIB, 0)
    flushed = Extent(100, 199, segment(2), 0, 8 * MIB, 0)
    large = Extent(200, 299, segment(3, level=2), 0, 20 * MIB, 0)
    extents = [small, flushed, large]
    assert segments_to_cut([wanted(0, 5, 300, extents)], 64 * MIB) == []
    assert segments_to_cut([wanted(0, 5, 250, extents)], 64 * MIB) == [large.segment]
    assert segments_to_cut([wanted(0, 0, 300, extents)], 16 * MIB) == [large.segment]


@st.composite
def logs(draw: st.DrawFn) -> list[Wanted]:
    """Partitions whose extents are spread over segments, in the order of offsets for each partition."""
    filled: dict[int, int] = defaultdict(int)
    found = []
    for partition in range(draw(st.integers(1, 4))):
        offset, extents = 0, []
        for number in draw(st.permutations(range(6)))[: draw(st.integers(0, 6))]:
            count, length = draw(st.integers(1, 20)), draw(st.integers(70, 4 * MIB))
            extents.append(Extent(offset, offset + count - 1, segment(number), filled[number], length, 0))
            filled[number] += length
            offset += count
        first, end = sorted((draw(st.integers(0, offset)), draw(st.integers(0, offset))))
        found.append(wanted(partition, first, end, extents))
    return found


@settings(deadline=None)
@given(logs(), st.integers(MIB, 8 * MIB))
def test_every_wanted_offset_is_read_once_and_in_order(many: list[Wanted], split_bytes: int) -> None:
    read: dict[int, list[int]] = defaultdict(list)
    splits = plan_splits(many, "c", split_bytes)
    for run in runs_of(splits):
        read[run.partition] += range(run.from_offset, run.to_offset)
    for each in many:
        assert read[each.partition] == list(range(each.from_offset, each.to_offset))
    for split in splits:
        assert split.size_bytes <= split_bytes or len(runs_of([split])) == 1
        for stretch in split.stretches:
            ends = [run.position + run.length for run in stretch.runs]
            assert ends[:-1] == [run.position for run in stretch.runs[1:]]


@settings(deadline=None)
@given(logs(), st.integers(1, 8 * MIB))
def test_a_byte_limit_keeps_a_stream_going_and_within_it(many: list[Wanted], bytes_max: int) -> None:
    ends = limit_bytes(many, bytes_max)
    for each in many:
        assert each.from_offset <= ends["t", each.partition] <= max(each.from_offset, each.to_offset)
    if any(each.from_offset < each.to_offset for each in many):
        assert any(ends["t", each.partition] > each.from_offset for each in many)
