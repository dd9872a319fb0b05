"""Ranges are made up of aligned chunks, exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacher.chunks import CHUNK_BYTES, chunks_of, is_readable, slices_of
from penstock.contracts.batches import SegmentRef
from penstock.contracts.messages import SegmentRead

MIB = 1024 * 1024


def segment(size_bytes: int, **changes: object) -> SegmentRef:
    fields = {"segment_id": bytes(16), "level": 0, "size_bytes": size_bytes, "writer": "f1", "zone": "z"} | changes
    return SegmentRef(**fields)


@given(st.integers(1, 4 * CHUNK_BYTES), st.data())
def test_the_slices_of_a_range_are_its_bytes_and_chunks_tile_the_segment(size_bytes: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, size_bytes - 1))
    length = data.draw(st.integers(1, size_bytes - position))
    read = SegmentRead(segment(size_bytes), position, length)
    assert is_readable(read)
    chunks = chunks_of(read)
    for chunk in chunks:
        assert chunk.position % CHUNK_BYTES == 0
        assert chunk.size_bytes == min(CHUNK_BYTES, size_bytes - chunk.position) > 0
    slices = slices_of(read, lambda chunk: memoryview(bytes(chunk.size_bytes)))
    assert sum(map(len, slices)) == length
    assert all(slices)
    assert chunks[0].position <= position
    assert chunks[-1].position + chunks[-1].size_bytes >= position + length


def test_a_range_over_a_chunk_boundary_has_the_right_bytes_of_both() -> None:
    whole = bytes(CHUNK_BYTES - 2) + b"abcdef"
    read = SegmentRead(segment(len(whole)), CHUNK_BYTES - 2, 5)

    def data_of(chunk: object) -> bytes:
        return whole[chunk.position : chunk.position + chunk.size_bytes]

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
def test_ranges_outside_of_what_can_exist_are_not_read(read: SegmentRead) -> None:
    assert not is_readable(read)
