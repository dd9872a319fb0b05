"""Batches get their offsets and epoch by the cheapest way, and no shared or unsent byte changes."""

import hypothesis.strategies as st
from hypothesis import given, settings

from penstock.contracts.codec import Buffer
from penstock.kafkawire.records import Record, batches, build_batch
from penstock_gateway.fetch.batch_placement import SPLIT_BATCH_BYTES_MIN, Placed, place_batches

EPOCH = 7
FIRST_OFFSET = 1_000


class Row:
    """Batches one after the other, between other bytes, with the places that they are to get."""

    def __init__(self, sizes: list[int], before: int = 0, after: int = 0) -> None:
        self.placed: list[Placed] = []
        data, offset = b"b" * before, FIRST_OFFSET
        for size_bytes in sizes:
            batch = build_batch([Record(0, 5, None, bytes(size_bytes))], base_offset=3)
            end = len(data) + len(batch)
            self.placed.append(Placed(len(data), end, offset, offset, 5, 1))
            data += batch
            offset += 1
        self.data = data + b"a" * after

    @property
    def size_bytes(self) -> int:
        return self.placed[-1].end - self.placed[0].start

    def check(self, buffers: list[Buffer]) -> None:
        sent = b"".join(buffers)
        found = list(batches(sent))
        places = [(header.base_offset, header.partition_leader_epoch) for _, header in found]
        assert places == [(FIRST_OFFSET + number, EPOCH) for number in range(len(self.placed))]
        for placed, (position, _) in zip(self.placed, found, strict=True):
            size = placed.end - placed.start
            assert sent[position + 8 : position + 12] == self.data[placed.start + 8 : placed.start + 12]
            assert sent[position + 16 : position + size] == self.data[placed.start + 16 : placed.end]


rows = st.builds(
    Row,
    st.lists(st.integers(0, 200) | st.integers(SPLIT_BATCH_BYTES_MIN, 20_000), min_size=1, max_size=6),
    st.integers(0, 50_000),
    st.integers(0, 50_000),
)


@settings(max_examples=100, deadline=None)
@given(row=rows)
def test_only_offset_and_epoch_change_and_only_in_a_buffer_of_the_read(row: Row) -> None:
    shared = bytearray(row.data)
    for data in (row.data, shared, memoryview(row.data), memoryview(shared).toreadonly()):
        row.check(place_batches(data, row.placed, EPOCH))
        assert data == row.data
    own = bytearray(row.data)
    row.check(place_batches(memoryview(own), row.placed, EPOCH))
    assert own[: row.placed[0].start] == row.data[: row.placed[0].start]
    assert own[row.placed[-1].end :] == row.data[row.placed[-1].end :]


def test_batches_in_a_buffer_of_the_read_are_not_copied() -> None:
    row = Row([10] * 100)
    own = memoryview(bytearray(row.data))
    (buffer,) = place_batches(own, row.placed, EPOCH)
    assert isinstance(buffer, memoryview) and buffer.obj is own.obj


def test_large_batches_in_a_shared_buffer_are_not_copied() -> None:
    row = Row([SPLIT_BATCH_BYTES_MIN] * 3)
    buffers = place_batches(row.data, row.placed, EPOCH)
    views = [buffer for buffer in buffers if isinstance(buffer, memoryview)]
    assert len(buffers) == 6 and [view.obj is row.data for view in views] == [True] * 3
    assert sum(map(len, buffers)) - sum(map(len, views)) == 3 * 16


def test_batches_that_have_their_places_already_are_one_view_of_a_shared_buffer() -> None:
    row = Row([SPLIT_BATCH_BYTES_MIN] * 3)
    compacted = b"".join(place_batches(row.data, row.placed, EPOCH))
    (buffer,) = place_batches(compacted, row.placed, EPOCH)
    assert isinstance(buffer, memoryview) and buffer.obj is compacted


def test_a_small_part_of_a_buffer_does_not_keep_it_in_memory() -> None:
    for own in (False, True):
        row = Row([SPLIT_BATCH_BYTES_MIN], after=2 * SPLIT_BATCH_BYTES_MIN)
        data = memoryview(bytearray(row.data)) if own else memoryview(row.data)
        (buffer,) = place_batches(data, row.placed, EPOCH)
        assert isinstance(buffer, bytearray) and len(buffer) == row.size_bytes
