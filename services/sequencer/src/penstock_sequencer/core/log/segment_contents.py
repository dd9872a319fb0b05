"""What each live segment was committed with: the way from a segment to the extents that point to it.

Per extent of the segment its partition's index and its base offset, 12 bytes, all of a segment in one `bytes`, which
costs the garbage collector nothing. It is derived, never written, and never changed while the segment lives: an extent
that was dropped or replaced since is told from a live one by looking it up.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from struct import Struct

from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.segments import MARKERS

_ENTRY = Struct("=Iq")
content_entry = _ENTRY.pack  # of a partition's index and an extent's base offset; a segment's contents are such entries


def count_contents(contents: bytes) -> int:
    """How many extents the segment was committed with."""
    return len(contents) // _ENTRY.size


def live_extents(state: State, slot: int) -> Iterator[tuple[Partition, int]]:
    """The extents that point to the segment: each partition, and the extent's row in it."""
    partitions = state.partitions_by_index
    for index, base_offset in _ENTRY.iter_unpack(state.segments.contents[slot]):
        partition = partitions.get(index)
        if partition is None:
            continue
        columns = partition.extents
        segments = columns.segments
        place = bisect_left(columns.last_offsets, base_offset, columns.head)
        if place < len(segments) and segments[place] == slot and columns.base_offsets[place] == base_offset:
            yield partition, place


def fill_contents(state: State) -> None:
    """Work out the contents of all segments from the partitions' extents, as after reading a snapshot."""
    segments, size, write = state.segments, _ENTRY.size, _ENTRY.pack_into
    # Where each segment's entries begin: with room for those of deleted topics, which are not entered.
    starts = list(accumulate((size * count for count in segments.live_extents), initial=0))
    ends = list(starts)
    entries = bytearray(starts[-1])
    for partition in state.partitions_by_index.values():
        columns, index = partition.extents, partition.index
        head = columns.head
        for slot, base_offset in zip(columns.segments[head:], columns.base_offsets[head:], strict=True):
            if slot == MARKERS:
                continue
            end = ends[slot]
            write(entries, end, index, base_offset)
            ends[slot] = end + size
    view = memoryview(entries)
    segments.contents = [bytes(view[starts[slot] : ends[slot]]) for slot in range(len(segments.levels))]
