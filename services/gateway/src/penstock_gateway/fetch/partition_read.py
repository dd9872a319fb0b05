"""One partition's part of a read: its start, its byte budget, and its result. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contracts.batches import Extent
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import PenstockError
from penstock.kafkawire.records import BATCH_OVERHEAD
from penstock_gateway.fetch.batch_assembly import FIRST_READ_BYTES_MIN, Cursor
from penstock_gateway.tail.tail_index import PartitionKey


@dataclass(slots=True)
class PartitionRead:
    """One partition's part of a fetch; `records` and `error` are filled in by the read."""

    key: PartitionKey
    offset: int
    end_offset: int
    leader_epoch: int
    extents: list[Extent]  # from the one that holds `offset` on
    cursor: Cursor  # at which the search for `offset` begins
    bytes_max: int
    whole_first: bool  # its first batch is read even if it exceeds `bytes_max`
    read_bytes: int  # to read in the next round
    records: list[Buffer] | None = None  # in buffers one after the other
    next_offset: int = -1  # after the last of the records
    ahead_bytes: int = 0  # how many bytes after this read cachers load in advance
    error: PenstockError | None = None

    @property
    def records_bytes(self) -> int:
        """The size of the records."""
        return sum(map(len, self.records or ()))

    @property
    def is_empty(self) -> bool:
        """Whether it was read, and there are no records before `end_offset`."""
        return self.records is None and self.error is None and self.next_offset >= 0


def first_read_bytes(offset: int, cursor: Cursor, bytes_max: int, scan_bytes: int, *, whole_first: bool) -> int:
    """How many bytes to read first, so that they most likely contain the batch of `offset`."""
    must_search = cursor.base_offset < offset
    return max(bytes_max, scan_bytes if must_search else FIRST_READ_BYTES_MIN if whole_first else BATCH_OVERHEAD)


def unread_bytes(extents: Sequence[Extent], cursor: Cursor) -> int:
    """The bytes of the extents after a cursor in the first of them."""
    return sum(extent.length for extent in extents) - (cursor.position - extents[0].position)


def divide_bytes(wanted: Sequence[int], total: int, least: int) -> list[int]:
    """Divide `total` bytes over partitions; `wanted` has the bytes that each of them wants. Return their shares.

    First each partition gets up to `least` bytes, in order, until no bytes are left. So even with a small total the
    first partitions get a useful share. The rest meets small wants in full; large wants share what is left equally.
    """
    shares = []
    for size_bytes in wanted:
        shares.append(min(size_bytes, least, total))
        total -= shares[-1]
    unmet = [size_bytes - share for size_bytes, share in zip(wanted, shares, strict=True)]
    for place, index in enumerate(sorted(range(len(unmet)), key=unmet.__getitem__)):
        more = min(unmet[index], total // (len(unmet) - place))
        shares[index] += more
        total -= more
    return shares
