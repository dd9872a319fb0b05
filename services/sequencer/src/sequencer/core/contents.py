"""What each live segment was committed with: the way from a segment to the extents that point to it.

Per extent of the segment its partition's index and its base offset, 12 bytes, packed as one `bytes` per segment, which
costs the garbage collector nothing. It is derived, never written, and never changed while the segment lives: an extent
that was dropped or replaced since is told from a live one by looking it up.
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate

from sequencer.core.state import Partition, State

_INDEX_BYTES = 4
_ENTRY_BYTES = 12


def pack_contents(indexes: "list[int] | array[int]", base_offsets: "list[int] | array[int]") -> bytes:
    """The indexes of partitions and the base offsets of their extents, one column after the other."""
    return array("I", indexes).tobytes() + array("q", base_offsets).tobytes()


def count_contents(data: bytes) -> int:
    """How many extents the segment was committed with."""
    return len(data) // _ENTRY_BYTES


def live_extents(state: State, row: int) -> Iterator[tuple[Partition, int]]:
    """The extents that point to the segment: each partition, and the extent's row in it."""
    data = state.segments.contents[row]
    cut = count_contents(data) * _INDEX_BYTES
    indexes, base_offsets = array("I"), array("q")
    indexes.frombytes(data[:cut])
    base_offsets.frombytes(data[cut:])
    partitions = state.partitions_by_index
    for index, base_offset in zip(indexes, base_offsets, strict=True):
        partition = partitions.get(index)
        if partition is None:
            continue
        columns = partition.extents
        place = columns.find_offset(base_offset)
        if place < columns.end and columns.segments[place] == row and columns.base_offsets[place] == base_offset:
            yield partition, place


def fill_contents(state: State) -> None:
    """Work out the contents of all segments from the partitions' extents, as after reading a snapshot."""
    segments = state.segments
    # Where each segment's entries begin: with room for those of deleted topics, which are not entered.
    starts = array("Q", accumulate(segments.live_extents, initial=0))
    ends = array("Q", starts)
    indexes, base_offsets = array("I", bytes(4 * starts[-1])), array("q", bytes(8 * starts[-1]))
    for partition in state.partitions_by_index.values():
        columns, index = partition.extents, partition.index
        head = columns.head
        for row, base_offset in zip(columns.segments[head:], columns.base_offsets[head:], strict=True):
            end = ends[row]
            indexes[end], base_offsets[end] = index, base_offset
            ends[row] = end + 1
    segments.contents = [
        pack_contents(indexes[starts[row] : ends[row]], base_offsets[starts[row] : ends[row]])
        for row in range(len(segments))
    ]
