"""Finds places in long extents of compacted segments by the segment's offset index, which is read once and kept.

The index of a segment holds an offset index of each of its extents: docs/formats/segment.md.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.ids import SegmentId, ulid_text
from penstock.contracts.messages import SegmentRead
from penstock.runtime.concurrency.single_flight import SingleFlight
from penstock.segment import CompactedIndex, OffsetIndex, Place, read_compacted_index_of
from penstock_gateway.fetch.batch_assembly import Cursor, start_of

INDEX_OVERHEAD_BYTES = 1024  # of one index besides its rows

ReadRanges = Callable[[Sequence[SegmentRead]], Awaitable[list[memoryview | PenstockError]]]


class OffsetIndexes:
    """The indexes of compacted segments, in bounded memory; the least recently used are evicted first."""

    def __init__(self, read: ReadRanges, *, bytes_max: int, indexed_bytes_min: int) -> None:
        """Keep `bytes_max` of indexes; extents of up to `indexed_bytes_min` are searched without an index."""
        self._read = read
        self._bytes_max = bytes_max
        self._indexed_bytes_min = indexed_bytes_min
        self._indexes: OrderedDict[SegmentId, CompactedIndex] = OrderedDict()
        self._loads: SingleFlight[SegmentId, CompactedIndex] = SingleFlight()
        self.held_bytes = 0

    def has(self, extent: Extent) -> bool:
        """Whether the extent is searched by its index; one read covers a shorter extent."""
        return extent.segment.level > 0 and extent.length > self._indexed_bytes_min

    async def place(self, extent: Extent, offset: int) -> Cursor:
        """The cursor at which the search for an offset begins; `PenstockError` if the index cannot be read."""
        if offset <= extent.base_offset or not self.has(extent):
            return start_of(extent)
        return _cursor(extent, (await self._offset_index(extent)).find(offset))

    async def place_time(self, extent: Extent, timestamp: int) -> Cursor | None:
        """The cursor at which the search for a record at or after a time begins; None if none exists."""
        if not self.has(extent):
            return start_of(extent)
        place = (await self._offset_index(extent)).find_timestamp(timestamp)
        return None if place is None else _cursor(extent, place)

    async def close(self) -> None:
        """End all loads."""
        await self._loads.close()

    async def _offset_index(self, extent: Extent) -> OffsetIndex:
        index = await self._index(extent.segment)
        number = index.run_at(extent.position)
        if index.runs[number].length != extent.length:
            raise _corrupt(extent.segment, f"a run of {index.runs[number].length} bytes, expected {extent.length}")
        return index.offset_index(number)

    async def _index(self, segment: SegmentRef) -> CompactedIndex:
        index = self._indexes.get(segment.segment_id)
        if index is None:
            return await self._loads.get(segment.segment_id, lambda: self._load(segment))
        self._indexes.move_to_end(segment.segment_id)
        return index

    async def _load(self, segment: SegmentRef) -> CompactedIndex:
        async def get_range(position: int, length: int) -> memoryview:
            (data,) = await self._read([SegmentRead(segment, position, length)])
            if isinstance(data, PenstockError):
                raise data
            return data

        index = await read_compacted_index_of(get_range, segment.size_bytes)
        if (index.segment_id, index.level) != (segment.segment_id, segment.level):
            raise _corrupt(segment, f"the index of segment {ulid_text(index.segment_id)} of level {index.level}")
        self._keep(segment.segment_id, index)
        return index

    def _keep(self, segment_id: SegmentId, index: CompactedIndex) -> None:
        self._indexes[segment_id] = index
        self.held_bytes += _weight_bytes(index)
        while self.held_bytes > self._bytes_max and len(self._indexes) > 1:
            _, evicted = self._indexes.popitem(last=False)
            self.held_bytes -= _weight_bytes(evicted)


def _cursor(extent: Extent, place: Place) -> Cursor:
    return Cursor(extent, place.position, place.offset)


def _weight_bytes(index: CompactedIndex) -> int:
    return index.memory_bytes + INDEX_OVERHEAD_BYTES


def _corrupt(segment: SegmentRef, found: str) -> Corrupt:
    return Corrupt(f"segment {ulid_text(segment.segment_id)} has {found}")
