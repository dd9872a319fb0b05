"""Where in an extent a reader will go on, so that it need not be looked for from the extent's start. Pure."""

from collections import OrderedDict

import msgspec

from penstock.contracts.batches import Extent
from penstock.contracts.ids import SegmentId
from penstock_gateway.fetch.batch_assembly import Cursor
from penstock_gateway.tail.tail_index import PartitionKey

HINTS_MAX = 32_768  # about 15 MB; one per reader of a partition is enough


class _Hint(msgspec.Struct, frozen=True, gc=False):
    segment_id: SegmentId
    position: int
    base_offset: int


class PositionCache:
    """The places reached by readers, the least used go first. A hint saves work; a wrong one is never followed."""

    def __init__(self, hints_max: int = HINTS_MAX) -> None:
        self._hints_max = hints_max
        self._hints: OrderedDict[tuple[PartitionKey, int], _Hint] = OrderedDict()

    def note(self, key: PartitionKey, offset: int, cursor: Cursor) -> None:
        """A reader that wants `offset` next can go on at `cursor`, which is not behind it."""
        self._hints[key, offset] = _Hint(cursor.extent.segment.segment_id, cursor.position, cursor.base_offset)
        self._hints.move_to_end((key, offset))
        if len(self._hints) > self._hints_max:
            self._hints.popitem(last=False)

    def place(self, key: PartitionKey, offset: int, extent: Extent) -> Cursor | None:
        """Where in the extent that holds `offset` to begin to look for it; None if nobody has been there."""
        hint = self._hints.get((key, offset)) if offset > extent.base_offset else None
        if hint is None or hint.segment_id != extent.segment.segment_id:
            return None
        inside = extent.position <= hint.position < extent.position + extent.length
        if not inside or not extent.base_offset <= hint.base_offset <= offset:
            return None
        self._hints.move_to_end((key, offset))
        return Cursor(extent, hint.position, hint.base_offset)
