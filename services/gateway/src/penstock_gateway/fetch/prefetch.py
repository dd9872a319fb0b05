"""Decides which parts of segments cachers load before sequential catch-up readers ask for them. Pure.

A reader that continues where an answer ended counts as sequential. The bytes loaded ahead of it double with each
answer. So a reader that reads at one place only costs no more than that read.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from penstock.contracts.batches import Extent
from penstock.contracts.chunks import CHUNK_BYTES, STRIPE_CHUNKS, stripe_at, stripe_end
from penstock.contracts.messages import SegmentRead
from penstock_gateway.fetch.batch_assembly import Cursor
from penstock_gateway.segments.cache_ring import part_of
from penstock_gateway.tail.control_batches import MarkerExtent
from penstock_gateway.tail.tail_index import PartitionKey

READERS_MAX = 8_192
AHEAD_BYTES_MIN, AHEAD_BYTES_MAX = CHUNK_BYTES // 4, 2 * STRIPE_CHUNKS * CHUNK_BYTES
PARTS_MAX = 4  # per answer: if a log is spread over many segments, each part holds little of it and much of other logs
PLANNED_EXTENTS_MAX = 32  # beyond the answer: plans for more short extents cost more than prefetch saves
RECENT_PARTS_MAX = 8_192
RECENT_S = 5.0  # cachers are not asked to load the same part again within this time


class _Reader(msgspec.Struct, frozen=True, gc=False):
    """How many bytes are loaded ahead of a reader, and how many a plan lists for that."""

    ahead_bytes: int
    plan_bytes: int


_NOT_SEQUENTIAL = _Reader(0, 0)


class Prefetcher:
    """The next offsets of sequential readers, the bytes loaded ahead of each, and the recent requests to cachers."""

    def __init__(self) -> None:
        self._readers: OrderedDict[tuple[PartitionKey, int], _Reader] = OrderedDict()
        self._asked_s: OrderedDict[str, float] = OrderedDict()

    def bytes_for(self, key: PartitionKey, offset: int) -> int:
        """How many bytes to load ahead of a reader that starts at an offset; 0 if no answer ended there."""
        return self._readers.get((key, offset), _NOT_SEQUENTIAL).ahead_bytes

    def plan_bytes_for(self, key: PartitionKey, offset: int) -> int:
        """How many bytes a plan should list beyond the answer, for a reader that starts at an offset."""
        return self._readers.get((key, offset), _NOT_SEQUENTIAL).plan_bytes

    def record(self, key: PartitionKey, ahead_bytes: int, next_offset: int, extents: Sequence[Extent]) -> None:
        """Record where a reader will continue, after `ahead_bytes` were loaded ahead of it.

        The extents are those of its last answer; the next extents are likely of similar length.
        """
        next_bytes = min(max(2 * ahead_bytes, AHEAD_BYTES_MIN), AHEAD_BYTES_MAX)
        usual_bytes = sum(extent.length for extent in extents) // max(len(extents), 1)
        self._readers[key, next_offset] = _Reader(next_bytes, min(next_bytes, PLANNED_EXTENTS_MAX * usual_bytes))
        self._readers.move_to_end((key, next_offset))
        if len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)

    def take_new(self, reads: Sequence[SegmentRead], now_s: float) -> list[SegmentRead]:
        """The reads that no cacher was asked to load lately; from now on they count as asked for."""
        new = []
        for read in reads:
            part = part_of(read.segment, read.position)
            if self._asked_s.get(part, now_s - RECENT_S) <= now_s - RECENT_S:
                self._asked_s[part] = now_s
                self._asked_s.move_to_end(part)
                new.append(read)
        while len(self._asked_s) > RECENT_PARTS_MAX:
            self._asked_s.popitem(last=False)
        return new


def parts_ahead(cursor: Cursor, extents: Sequence[Extent], next_offset: int, ahead_bytes: int) -> list[SegmentRead]:
    """The ranges to load for a reader that got to `next_offset`: one of each part after the part of `cursor`.

    The reader's own reads load the rest of the part that it is in.
    """
    reads: list[SegmentRead] = []
    parts = {part_of(cursor.extent.segment, cursor.position)}
    for read in _ranges(cursor, [each for each in extents if each.last_offset >= next_offset], ahead_bytes):
        part = part_of(read.segment, read.position)
        if part in parts:
            continue
        if len(reads) == PARTS_MAX:
            break
        parts.add(part)
        reads.append(read)
    return reads


def _ranges(cursor: Cursor, extents: Sequence[Extent], ahead_bytes: int) -> Iterator[SegmentRead]:
    """The next `ahead_bytes` of a log, cut where parts end."""
    for extent in extents:
        if isinstance(extent, MarkerExtent):
            continue
        is_own = extent.base_offset == cursor.extent.base_offset
        position = cursor.position if is_own else extent.position
        end = min(extent.position + extent.length, position + ahead_bytes)
        ahead_bytes -= end - position
        while position < end:
            stop = min(end, _part_end(extent, position))
            # The read names the first byte only; the cacher loads the rest of the range with it.
            yield SegmentRead(extent.segment, position, 1, stop - position - 1)
            position = stop
        if not ahead_bytes:
            return


def _part_end(extent: Extent, position: int) -> int:
    size_bytes = extent.segment.size_bytes
    return size_bytes if extent.segment.level == 0 else stripe_end(size_bytes, stripe_at(size_bytes, position))
