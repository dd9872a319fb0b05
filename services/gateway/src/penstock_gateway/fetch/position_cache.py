"""The positions at which readers will continue, so that no read searches from the start of an extent. Pure."""

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
    """The positions reached by readers; the least recently used are evicted first.

    A position only saves work. Each is checked against the extent before it is used.
    """

    def __init__(self, positions_max: int) -> None:
        self._positions_max = positions_max
        self._positions: OrderedDict[tuple[PartitionKey, int], _Position] = OrderedDict()

    def record(self, key: PartitionKey, offset: int, cursor: Cursor) -> None:
        """Record that a reader that wants `offset` next can continue at `cursor`, which is not after that offset."""
        self._positions[key, offset] = _Position(cursor.extent.segment.segment_id, cursor.position, cursor.base_offset)
        self._positions.move_to_end((key, offset))
        if len(self._positions) > self._positions_max:
            self._positions.popitem(last=False)

    def place(self, key: PartitionKey, offset: int, extent: Extent) -> Cursor | None:
        """The cursor at which the search for `offset` begins in its extent; None if no reader has been there."""
        known = self._positions.get((key, offset)) if offset > extent.base_offset else None
        if known is None or known.segment_id != extent.segment.segment_id:
            return None
        inside = extent.position <= known.position < extent.position + extent.length
        if not inside or not extent.base_offset <= known.base_offset <= offset:
            return None
        self._positions.move_to_end((key, offset))
        return Cursor(extent, known.position, known.base_offset)
