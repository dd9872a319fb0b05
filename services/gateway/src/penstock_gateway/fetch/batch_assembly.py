"""Assembles a consumer's batches from the bytes of extents: whole batches from an offset on, with real offsets. Pure.

Batches in a level-0 segment carry the offsets that their producer wrote. Their real offsets follow from the extent's
base offset and the record counts of the batches before. Batches above level 0 carry their real offsets already. There
may be gaps between them, and batches without records. But the last batch of an extent always ends with its last offset.
"""

import struct
from collections.abc import Iterator, Sequence

import msgspec

from penstock.contracts.batches import Extent
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.ids import ulid_text
from penstock.contracts.messages import SegmentRead
from penstock.kafkawire.records import BATCH_OVERHEAD, LENGTH_END
from penstock_gateway.fetch.batch_placement import Placed, place_batches

FIRST_READ_BYTES_MIN = 16 * 1024  # a consumer with a tiny byte budget mostly gets its one batch in one read

# The header fields that place a batch: base offset, length; last offset delta; max timestamp; record count.
_FIELDS = struct.Struct(">qi11xi8xq14xi")


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """A place in an extent: the batch at byte `position` of the segment begins with `base_offset`."""

    extent: Extent
    position: int
    base_offset: int


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """A range of an extent to read: `length` bytes from the cursor on."""

    cursor: Cursor
    length: int


class Assembled(msgspec.Struct, frozen=True, gc=False):
    """Batches for a consumer, in buffers one after the other; None without any batch.

    `cursor` is the place of the first batch that was not taken, None at an extent's end. `unread_bytes` is 0 when the
    answer is final. Otherwise no batch was found yet, and the search needs that many bytes from the cursor on.
    """

    records: list[Buffer] | None
    next_offset: int
    cursor: Cursor | None
    unread_bytes: int


def start_of(extent: Extent) -> Cursor:
    """The first batch of an extent."""
    return Cursor(extent, extent.position, extent.base_offset)


def fragments_from(cursor: Cursor, extents: Sequence[Extent], bytes_max: int) -> list[Fragment]:
    """The fragments to read from a cursor on, through its own extent and the next ones in `extents`."""
    fragments: list[Fragment] = []
    for extent in extents:
        if extent.last_offset < cursor.extent.base_offset:
            continue
        begin = cursor if extent.base_offset == cursor.extent.base_offset else start_of(extent)
        length = min(extent.position + extent.length - begin.position, bytes_max)
        if length < BATCH_OVERHEAD and fragments:
            break
        fragments.append(Fragment(begin, length))
        bytes_max -= length
    return fragments


def walk(fragment: Fragment, data: Buffer) -> Iterator[Placed]:
    """The whole batches in a fragment's bytes; `Corrupt` if they are not those of the extent."""
    extent = fragment.cursor.extent
    left_bytes = extent.position + extent.length - fragment.cursor.position  # of the extent
    offset = fragment.cursor.base_offset
    position, size = 0, len(data)
    while position + BATCH_OVERHEAD <= size:
        base_offset, length, last_delta, max_timestamp, count = _FIELDS.unpack_from(data, position)
        length += LENGTH_END
        if not BATCH_OVERHEAD <= length <= left_bytes - position:
            raise _corrupt(fragment, position, f"a batch of {length} bytes")
        if extent.segment.level == 0:
            base_offset, last_delta = offset, count - 1
        last_offset = base_offset + last_delta
        if not offset <= base_offset <= last_offset <= extent.last_offset:
            raise _corrupt(fragment, position, f"offsets {base_offset} to {last_offset}, expected {offset} or more")
        end = position + length
        if end == left_bytes and last_offset != extent.last_offset:
            raise _corrupt(fragment, position, f"the last offset {last_offset}, expected {extent.last_offset}")
        if end > size:
            return
        yield Placed(position, end, base_offset, last_offset, max_timestamp, count)
        offset, position = last_offset + 1, end
    if size == left_bytes and position < size:
        raise _corrupt(fragment, position, f"{size - position} bytes that are no batch")


def cursor_after(fragment: Fragment, placed: Placed) -> Cursor | None:
    """The place after a batch of a fragment, None at the end of the extent."""
    extent = fragment.cursor.extent
    position = fragment.cursor.position + placed.end
    return None if position == extent.position + extent.length else Cursor(extent, position, placed.last_offset + 1)


def batch_bytes(fragment: Fragment, cursor: Cursor, data: Buffer) -> int:
    """The size of a batch that the fragment cuts off at `cursor`; 0 if not even its header is there."""
    start = cursor.position - fragment.cursor.position
    if start + BATCH_OVERHEAD > len(data):
        return 0
    length: int = _FIELDS.unpack_from(data, start)[1]
    return length + LENGTH_END


def assemble(
    offset: int,
    end_offset: int,
    fragments: Sequence[tuple[Fragment, Buffer | PenstockError]],
    *,
    bytes_max: int,
    whole_first: bool,
    leader_epoch: int,
    scan_bytes: int,
) -> Assembled:
    """Whole batches from the one that holds `offset` up to `end_offset`, within a byte budget.

    With `whole_first` the first batch is taken even if it exceeds the budget. A fragment that could not be read ends
    the answer. Its error is raised if the answer would be empty.
    """
    assembly = _Assembly(offset, end_offset, bytes_max, whole_first, scan_bytes)
    for fragment, data in fragments:
        if isinstance(data, PenstockError):
            if not assembly.spans:
                raise data
            break
        if not assembly.take(fragment, data):
            break
    records = [buffer for data, taken in assembly.spans for buffer in place_batches(data, taken, leader_epoch)] or None
    return Assembled(records, assembly.next_offset, assembly.cursor, 0 if assembly.spans else assembly.unread_bytes)


class _Assembly:
    """The batches taken so far for one partition."""

    def __init__(self, offset: int, end_offset: int, bytes_max: int, whole_first: bool, scan_bytes: int) -> None:
        self.next_offset = offset
        self.cursor: Cursor | None = None
        self.unread_bytes = 0
        self.spans: list[tuple[Buffer, list[Placed]]] = []
        self._end_offset = end_offset
        self._left_bytes = bytes_max
        self._whole_first = whole_first
        self._scan_bytes = scan_bytes

    def take(self, fragment: Fragment, data: Buffer) -> bool:
        """Take the wanted batches of a fragment; return whether the next extent may follow."""
        taken: list[Placed] = []
        self.cursor = fragment.cursor
        is_full = False
        for placed in walk(fragment, data):
            if placed.last_offset >= self.next_offset:
                is_full = not self._fits(placed, bool(taken or self.spans))
                if is_full:
                    break
                taken.append(placed)
                self.next_offset = placed.last_offset + 1
                self._left_bytes -= placed.end - placed.start
            self.cursor = cursor_after(fragment, placed)
        if taken:
            self.spans.append((data, taken))
        if self.cursor is not None and not is_full:
            self.unread_bytes = self._unread(fragment, self.cursor, data)
        return self.cursor is None

    def _fits(self, placed: Placed, any_taken: bool) -> bool:
        if placed.base_offset >= self._end_offset:
            return False
        return placed.end - placed.start <= self._left_bytes or (self._whole_first and not any_taken)

    def _unread(self, fragment: Fragment, cursor: Cursor, data: Buffer) -> int:
        """How many bytes to read next, where the bytes at hand end inside a batch or after one."""
        size = batch_bytes(fragment, cursor, data)
        is_wanted = size > 0 and self._holds_next(fragment, cursor, data)
        if is_wanted and not self._whole_first and size > self._left_bytes:
            return 0
        rest = cursor.extent.position + cursor.extent.length - cursor.position
        return min(rest, max(size, FIRST_READ_BYTES_MIN if is_wanted else self._scan_bytes))

    def _holds_next(self, fragment: Fragment, cursor: Cursor, data: Buffer) -> bool:
        base_offset, _, last_delta, _, count = _FIELDS.unpack_from(data, cursor.position - fragment.cursor.position)
        last_offset = cursor.base_offset + count - 1 if cursor.extent.segment.level == 0 else base_offset + last_delta
        return bool(last_offset >= self.next_offset)


def read_of(fragment: Fragment, ahead_bytes: int = 0) -> SegmentRead:
    """The segment's range for a fragment, for a reader that soon wants `ahead_bytes` more of the extent."""
    extent, position = fragment.cursor.extent, fragment.cursor.position
    left_bytes = extent.position + extent.length - position - fragment.length
    return SegmentRead(extent.segment, position, fragment.length, min(ahead_bytes, left_bytes))


def _corrupt(fragment: Fragment, position: int, found: str) -> Corrupt:
    extent = fragment.cursor.extent
    return Corrupt(
        f"segment {ulid_text(extent.segment.segment_id)} has {found} at byte {fragment.cursor.position + position}, "
        f"in the extent of offsets {extent.base_offset} to {extent.last_offset}"
    )
