"""What cachers load before sequential catch-up readers ask for it, and how much of that. Pure.

A reader that goes on where an answer ended counts as sequential. How far ahead of it is loaded doubles with each
answer, so a reader that looks at one place only costs no more than that place.
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
PARTS_MAX = 4  # per answer: where a log is spread over many segments, each part holds little of it and much of others
PLANNED_EXTENTS_MAX = 32  # beyond what an answer takes: where they are short, plans cost more than they are worth
RECENT_PARTS_MAX = 8_192
RECENT_S = 5.0  # a part that cachers were asked to load is not asked for again so soon


class _Reader(msgspec.Struct, frozen=True, gc=False):
    """How far ahead of a reader is loaded, and how far beyond its next answer a plan reaches for that."""

    ahead_bytes: int
    plan_bytes: int


_NOT_SEQUENTIAL = _Reader(0, 0)


class Prefetcher:
    """Where sequential readers go on, how far ahead of each is loaded, and what cachers were asked to load lately."""

    def __init__(self) -> None:
        self._readers: OrderedDict[tuple[PartitionKey, int], _Reader] = OrderedDict()
        self._asked_s: OrderedDict[str, float] = OrderedDict()

    def bytes_for(self, key: PartitionKey, offset: int) -> int:
        """How far to read ahead of a reader that starts at an offset; 0 if no reader has ended there."""
        return self._readers.get((key, offset), _NOT_SEQUENTIAL).ahead_bytes

    def plan_bytes_for(self, key: PartitionKey, offset: int) -> int:
        """How many bytes more than an answer takes are worth a plan, for a reader that starts at an offset."""
        return self._readers.get((key, offset), _NOT_SEQUENTIAL).plan_bytes

    def record(self, key: PartitionKey, ahead_bytes: int, next_offset: int, extents: Sequence[Extent]) -> None:
        """A reader goes on at an offset after so much was loaded ahead; extents like these most likely come next."""
        next_bytes = min(max(2 * ahead_bytes, AHEAD_BYTES_MIN), AHEAD_BYTES_MAX)
        usual_bytes = sum(extent.length for extent in extents) // max(len(extents), 1)
        self._readers[key, next_offset] = _Reader(next_bytes, min(next_bytes, PLANNED_EXTENTS_MAX * usual_bytes))
        self._readers.move_to_end((key, next_offset))
        if len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)

    def take_new(self, reads: Sequence[SegmentRead], now_s: float) -> list[SegmentRead]:
        """Those that no cacher was asked to load lately; from now on they count as asked for."""
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
    """What to load of the parts behind that of `cursor`, for a reader that got to `next_offset`: one range of each.

    The rest of the part that the reader is in comes with its own reads.
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
    """The next so many bytes of a log, cut where parts end."""
    for extent in extents:
        if isinstance(extent, MarkerExtent):
            continue
        is_own = extent.base_offset == cursor.extent.base_offset
        position = cursor.position if is_own else extent.position
        end = min(extent.position + extent.length, position + ahead_bytes)
        ahead_bytes -= end - position
        while position < end:
            stop = min(end, _part_end(extent, position))
            # Asked for by its first byte: the rest of the part comes along as far as it is wanted.
            yield SegmentRead(extent.segment, position, 1, stop - position - 1)
            position = stop
        if not ahead_bytes:
            return


def _part_end(extent: Extent, position: int) -> int:
    size_bytes = extent.segment.size_bytes
    return size_bytes if extent.segment.level == 0 else stripe_end(size_bytes, stripe_at(size_bytes, position))
