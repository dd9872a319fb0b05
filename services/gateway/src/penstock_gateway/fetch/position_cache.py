"""Where in an extent a reader will go on, so that no read looks for it from the start of the extent. Pure."""

from collections import OrderedDict

import msgspec

from penstock.contracts.batches import Extent
from penstock.contracts.ids import SegmentId
from penstock_gateway.fetch.batch_assembly import Cursor
from penstock_gateway.tail.tail_index import PartitionKey


class _Position(msgspec.Struct, frozen=True, gc=False):
    segment_id: SegmentId
    position: int
    base_offset: int


class PositionCache:
    """The places reached by readers; the least recently used go first. A place saves work; a wrong one is not used."""

    def __init__(self, positions_max: int) -> None:
        self._positions_max = positions_max
        self._positions: OrderedDict[tuple[PartitionKey, int], _Position] = OrderedDict()

    def record(self, key: PartitionKey, offset: int, cursor: Cursor) -> None:
        """A reader that wants `offset` next can go on at `cursor`, which is not behind it."""
        self._positions[key, offset] = _Position(cursor.extent.segment.segment_id, cursor.position, cursor.base_offset)
        self._positions.move_to_end((key, offset))
        if len(self._positions) > self._positions_max:
            self._positions.popitem(last=False)

    def place(self, key: PartitionKey, offset: int, extent: Extent) -> Cursor | None:
        """Where in the extent that holds `offset` to begin to look for it; None if no reader has been there."""
        known = self._positions.get((key, offset)) if offset > extent.base_offset else None
        if known is None or known.segment_id != extent.segment.segment_id:
            return None
        inside = extent.position <= known.position < extent.position + extent.length
        if not inside or not extent.base_offset <= known.base_offset <= offset:
            return None
        self._positions.move_to_end((key, offset))
        return Cursor(extent, known.position, known.base_offset)
