"""The contents of each live segment: the extents that it was committed with, to find those that point to it.

The contents have 12 bytes per extent: the index of its partition and its base offset. All entries of a segment are in
one `bytes` object, which costs the garbage collector nothing.

The contents are derived, and no snapshot holds them. They never change while the segment is live. A lookup shows
whether an extent is still there, or was dropped or replaced since.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from struct import Struct

from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.segments import MARKERS

_ENTRY = Struct("=Iq")
content_entry = _ENTRY.pack  # packs a partition's index and an extent's base offset to one entry of the contents


def count_contents(contents: bytes) -> int:
    """The number of extents that the segment was committed with."""
    return len(contents) // _ENTRY.size


def live_extents(state: State, slot: int) -> Iterator[tuple[Partition, int]]:
    """The extents that point to the segment: for each its partition, and its row there."""
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
    """Compute the contents of all segments from the extents of all partitions, after a snapshot was read."""
    segments, size, write = state.segments, _ENTRY.size, _ENTRY.pack_into
    # Where the entries of each segment begin. There is space for extents of deleted topics, which are not entered.
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
