"""The newest segments in memory, limited in bytes, so that tailing readers cost no GET."""

import itertools
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from penstock.contracts.codec import Buffer
from penstock.contracts.ids import SegmentId

BUFFER_OVERHEAD_BYTES = 256  # a view and its list entry, so that segments of tiny batches are counted completely


class _Segment:
    __slots__ = ("buffers", "size_bytes", "starts", "weight_bytes")

    def __init__(self, buffers: Sequence[Buffer], size_bytes: int) -> None:
        self.buffers = buffers
        self.starts = list(itertools.accumulate((len(buffer) for buffer in buffers), initial=0))[:-1]
        self.size_bytes = size_bytes
        self.weight_bytes = size_bytes + len(buffers) * BUFFER_OVERHEAD_BYTES


class RecentSegments:
    """Segments by id; the oldest is removed first when memory is needed.

    The oldest is removed, and not the least recently used, because each cacher loads a segment's bytes once. A read
    does not make another read more likely. A segment may be here before its commit: readers learn its id only from the
    journal.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._segments: OrderedDict[SegmentId, _Segment] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, segment_id: SegmentId, buffers: Sequence[Buffer], size_bytes: int) -> None:
        """Keep a new segment, and remove the oldest ones until all fit; a segment above the limit is not kept."""
        self.discard(segment_id)
        segment = _Segment(buffers, size_bytes)
        self._segments[segment_id] = segment
        self.held_bytes += segment.weight_bytes
        while self.held_bytes > self._bytes_max:
            _, oldest = self._segments.popitem(last=False)
            self.held_bytes -= oldest.weight_bytes

    def discard(self, segment_id: SegmentId) -> None:
        """Remove a segment if it is kept."""
        segment = self._segments.pop(segment_id, None)
        if segment is not None:
            self.held_bytes -= segment.weight_bytes

    def read(self, segment_id: SegmentId, position: int, length: int) -> list[Buffer] | None:
        """Views of the range, in order; None if the segment is not kept, or the range lies outside it."""
        segment = self._segments.get(segment_id)
        if segment is None or position < 0 or length <= 0 or position + length > segment.size_bytes:
            return None
        found: list[Buffer] = []
        at = bisect_right(segment.starts, position) - 1
        while length:
            start = position - segment.starts[at]
            view = memoryview(segment.buffers[at])[start : start + length]
            found.append(view)
            position += len(view)
            length -= len(view)
            at += 1
        return found
