"""Sequential catch-up readers find their next data in the cachers; no other reader causes a load."""

from hypothesis import given, strategies as st

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.chunks import CHUNK_BYTES, STRIPE_CHUNKS
from penstock.contracts.messages import SegmentRead
from penstock_gateway.fetch.batch_assembly import Cursor, start_of
from penstock_gateway.fetch.prefetch import (
    AHEAD_BYTES_MAX,
    AHEAD_BYTES_MIN,
    PARTS_MAX,
    READERS_MAX,
    RECENT_S,
    Prefetcher,
    parts_ahead,
)
from penstock_gateway.segments.cache_ring import part_of

STRIPE_BYTES = STRIPE_CHUNKS * CHUNK_BYTES
KEY = (bytes(16), 0)


def extent(number: int, length: int, level: int = 1, position: int = 0) -> Extent:
    """The extent of offsets 100 * number to 100 * number + 99."""
    segment = SegmentRef(number.to_bytes(16), level, position + length + 1_000, "", "")
    return Extent(100 * number, 100 * number + 99, segment, position, length, 0)


def test_nothing_is_loaded_ahead_of_a_reader_of_one_place() -> None:
    ahead = Prefetcher()
    assert ahead.bytes_for(KEY, 0) == 0
    ahead.record(KEY, 0, 10, [])
    assert ahead.bytes_for(KEY, 0) == ahead.bytes_for(KEY, 9) == ahead.bytes_for((bytes(16), 1), 10) == 0


def test_the_bytes_ahead_of_a_sequential_reader_double_each_time() -> None:
    ahead, offset, seen = Prefetcher(), 0, []
    for _ in range(12):
        seen.append(ahead.bytes_for(KEY, offset))
        ahead.record(KEY, seen[-1], offset + 10, [])
        offset += 10
    assert seen[:3] == [0, AHEAD_BYTES_MIN, 2 * AHEAD_BYTES_MIN]
    assert seen[-1] == AHEAD_BYTES_MAX


def test_a_bounded_number_of_readers_is_recorded() -> None:
    ahead = Prefetcher()
    for number in range(READERS_MAX + 1):
        ahead.record((bytes(16), number), 0, 10, [])
    assert ahead.bytes_for((bytes(16), 0), 10) == 0
    assert ahead.bytes_for((bytes(16), 1), 10) == AHEAD_BYTES_MIN


def test_a_part_is_not_requested_again_for_a_while() -> None:
    ahead = Prefetcher()
    one, other = SegmentRead(extent(1, 10).segment, 0, 1), SegmentRead(extent(2, 10).segment, 0, 1)
    assert ahead.take_new([one], 100.0) == [one]
    assert ahead.take_new([one, other], 100.0 + RECENT_S / 2) == [other]
    assert ahead.take_new([one, other], 100.0 + RECENT_S) == [one]


def test_the_next_stripes_of_a_long_run_are_loaded_as_far_as_needed() -> None:
    run = extent(1, 10 * STRIPE_BYTES)
    reads = parts_ahead(start_of(run), [run], 100, STRIPE_BYTES + 5)
    assert [(read.position, read.length + read.ahead) for read in reads] == [(STRIPE_BYTES, 5)]
    inside = Cursor(run, STRIPE_BYTES - 1, 110)
    reads = parts_ahead(inside, [run], 110, STRIPE_BYTES + 5)
    assert [(read.position, read.length + read.ahead) for read in reads] == [
        (STRIPE_BYTES, STRIPE_BYTES),
        (2 * STRIPE_BYTES, 4),
    ]


def test_short_runs_in_many_segments_are_loaded_a_few_at_a_time() -> None:
    runs = [extent(number, 1_000, level=0, position=50_000) for number in range(20)]
    reads = parts_ahead(start_of(runs[0]), runs, 100, AHEAD_BYTES_MAX)
    assert [read.segment for read in reads] == [run.segment for run in runs[1 : 1 + PARTS_MAX]]
    assert {(read.position, read.length + read.ahead) for read in reads} == {(50_000, 1_000)}


@given(
    lengths=st.lists(st.integers(1, 3 * STRIPE_BYTES), min_size=1, max_size=6),
    ahead_bytes=st.integers(1, AHEAD_BYTES_MAX),
    data=st.data(),
)
def test_parts_ahead_are_never_too_many_bytes_nor_repeated_nor_the_readers_own(
    lengths: list[int], ahead_bytes: int, data: st.DataObject
) -> None:
    runs = [extent(number, length) for number, length in enumerate(lengths)]
    at = data.draw(st.sampled_from(runs))
    cursor = Cursor(at, data.draw(st.integers(0, at.length - 1)), at.base_offset)
    reads = parts_ahead(cursor, runs, at.base_offset, ahead_bytes)
    parts = [part_of(read.segment, read.position) for read in reads]
    assert len(set(parts)) == len(parts) <= PARTS_MAX
    assert part_of(at.segment, cursor.position) not in parts
    assert sum(read.length + read.ahead for read in reads) <= ahead_bytes
    for read in reads:
        assert 0 <= read.position < read.position + read.length + read.ahead <= read.segment.size_bytes
