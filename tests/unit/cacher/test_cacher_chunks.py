"""Ranges consist exactly of aligned chunks."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import CHUNK_BYTES, SPILL_BYTES_MAX, STRIPE_CHUNKS, chunk_count
from penstock.contracts.messages import SegmentRead
from penstock_cacher.chunks import chunks_ahead, chunks_of, is_readable, runs_of, slices_of

MIB = 1024 * 1024
ZEROS = bytes(CHUNK_BYTES + SPILL_BYTES_MAX)


def segment(size_bytes: int, **changes: object) -> SegmentRef:
    fields = {"segment_id": bytes(16), "level": 0, "size_bytes": size_bytes, "writer": "f1", "zone": "z"} | changes
    return SegmentRef(**fields)


@given(st.integers(1, 10 * CHUNK_BYTES), st.data())
def test_the_slices_of_a_range_are_its_bytes_and_chunks_tile_the_segment(size_bytes: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, size_bytes - 1))
    length = data.draw(st.integers(1, size_bytes - position))
    read = SegmentRead(segment(size_bytes), position, length)
    assert is_readable(read)
    chunks = chunks_of(read)
    for chunk in chunks:
        assert chunk.position % CHUNK_BYTES == 0
        assert 0 < chunk.size_bytes <= CHUNK_BYTES + SPILL_BYTES_MAX
    for chunk, following in pairwise(chunks):
        assert chunk.position + chunk.size_bytes == following.position
    slices = slices_of(read, lambda chunk: memoryview(ZEROS)[: chunk.size_bytes])
    assert sum(map(len, slices)) == length
    assert all(slices)
    assert chunks[0].position <= position
    assert chunks[-1].position + chunks[-1].size_bytes >= position + length


def test_the_last_chunk_includes_the_excess_bytes_of_a_full_segment() -> None:
    full = segment(2 * CHUNK_BYTES + SPILL_BYTES_MAX)
    assert [chunk.size_bytes for chunk in chunks_of(SegmentRead(full, 0, full.size_bytes))] == [
        CHUNK_BYTES,
        CHUNK_BYTES + SPILL_BYTES_MAX,
    ]
    assert chunk_count(full.size_bytes + 1) == 3
    assert chunk_count(1) == 1


@given(st.integers(1, 10 * CHUNK_BYTES), st.integers(0, 8 * CHUNK_BYTES), st.data())
def test_ahead_of_a_range_are_the_next_chunks_of_its_stripe(size_bytes: int, ahead: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, size_bytes - 1))
    read = SegmentRead(segment(size_bytes), position, data.draw(st.integers(1, size_bytes - position)), ahead)
    last, following = chunks_of(read)[-1], chunks_ahead(read)
    assert [chunk.index for chunk in following] == list(range(last.index + 1, last.index + 1 + len(following)))
    assert all(chunk.index // STRIPE_CHUNKS == last.index // STRIPE_CHUNKS for chunk in following)
    covered = (following or [last])[-1]
    assert covered.index + 1 == chunk_count(size_bytes) or (
        covered.index % STRIPE_CHUNKS == STRIPE_CHUNKS - 1
        or covered.position + covered.size_bytes >= read.position + read.length + ahead
    )
    if not ahead:
        assert not following


@given(st.sets(st.integers(0, 11)))
def test_runs_are_neighbours_of_one_stripe(indexes: set[int]) -> None:
    large = segment(12 * CHUNK_BYTES)
    chunks = chunks_of(SegmentRead(large, 0, large.size_bytes))
    runs = runs_of(chunks[index] for index in indexes)
    assert [chunk.index for run in runs for chunk in run] == sorted(indexes)
    for run in runs:
        assert [chunk.index for chunk in run] == list(range(run[0].index, run[0].index + len(run)))
        assert len({chunk.index // STRIPE_CHUNKS for chunk in run}) == 1
    for run, following in pairwise(runs):
        assert following[0].index > run[-1].index + 1 or following[0].index % STRIPE_CHUNKS == 0


def test_a_range_over_a_chunk_boundary_has_the_right_bytes_of_both() -> None:
    body = bytes(CHUNK_BYTES - 2) + b"abcdef" + bytes(SPILL_BYTES_MAX)
    read = SegmentRead(segment(len(body)), CHUNK_BYTES - 2, 5)

    def data_of(chunk: object) -> bytes:
        return body[chunk.position : chunk.position + chunk.size_bytes]

    assert b"".join(slices_of(read, data_of)) == b"abcde"


@pytest.mark.parametrize(
    "read",
    [
        SegmentRead(segment(100), -1, 5),
        SegmentRead(segment(100), 0, 0),
        SegmentRead(segment(100), 96, 5),
        SegmentRead(segment(100), 0, 101),
        SegmentRead(segment(0), 0, 1),
        SegmentRead(segment(100, level=-1), 0, 1),
        SegmentRead(segment(100, level=10), 0, 1),
        SegmentRead(segment(100, segment_id=b"short"), 0, 1),
    ],
)
def test_impossible_ranges_are_not_readable(read: SegmentRead) -> None:
    assert not is_readable(read)
