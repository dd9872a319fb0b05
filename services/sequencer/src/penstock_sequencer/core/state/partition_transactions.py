"""The transactions of one partition: the open ones, the markers of ended ones, and the aborted ones."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from penstock.contracts.batches import AbortedTransaction, Marker
from penstock_sequencer.core.state.columns import column_bytes, read_column

# All rows lie in one array, because there are many partitions and most of them have few rows.
_MARKER_NUMBERS = 5  # offset, producer id, (coordinator epoch, epoch, committed), clock, first offset
_ABORTED_NUMBERS = 4  # producer id, first offset, last offset, stable offset
_EPOCH_BITS = 16


class PartitionTransactions:
    """The transactions of a partition, which has this from its first transaction on.

    `open` maps the producer id of each open transaction to the transaction's first offset in the partition. It is in
    the order of these offsets, because a later transaction begins at a later offset. So its first value is the last
    stable offset.

    A marker is kept as long as its extent (40 bytes each), in the order of offsets. An aborted transaction is kept
    while the log may hold its records (32 bytes each), by last offset. The last offset of a transaction is the offset
    of its marker.

    The stable offset of an aborted transaction is the last stable offset right after its abort. Every transaction that
    was aborted later began at that offset or above.
    """

    __slots__ = ("_aborted", "_markers", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._markers = array("q")
        self._aborted = array("q")

    @property
    def marker_count(self) -> int:
        """The number of markers."""
        return len(self._markers) // _MARKER_NUMBERS

    @property
    def aborted_count(self) -> int:
        """The number of aborted transactions that are remembered."""
        return len(self._aborted) // _ABORTED_NUMBERS

    def end(self, marker: Marker) -> None:
        """End the producer's transaction with this marker, whose offset lies above all others."""
        packed = (marker.coordinator_epoch << _EPOCH_BITS | marker.producer_epoch) << 1 | marker.committed
        self._markers.extend((marker.offset, marker.producer_id, packed, marker.timestamp, marker.first_offset))
        del self.open[marker.producer_id]
        if not marker.committed:
            stable = next(iter(self.open.values()), marker.offset + 1)
            self._aborted.extend((marker.producer_id, marker.first_offset, marker.offset, stable))

    def marker(self, offset: int) -> Marker:
        """The marker at this offset; there must be one."""
        place = self._find_marker(offset) * _MARKER_NUMBERS
        found, producer_id, packed, clock_ms, first_offset = self._markers[place : place + _MARKER_NUMBERS]
        assert found == offset, f"no marker at {offset}"
        epochs, committed = packed >> 1, bool(packed & 1)
        epoch = epochs & ((1 << _EPOCH_BITS) - 1)
        return Marker(offset, producer_id, epoch, committed, epochs >> _EPOCH_BITS, clock_ms, first_offset)

    def aborted(self, offset: int, end_offset: int, count_max: int) -> tuple[list[AbortedTransaction], int]:
        """Aborted transactions with records from `offset` to before `end_offset`, by their last offsets.

        The list is complete below the offset that comes with it: `end_offset`, or less if there are too many of them.
        """
        first = self._find_aborted(offset)
        start, end = first * _ABORTED_NUMBERS, self._after_aborted(first, end_offset) * _ABORTED_NUMBERS
        columns = [self._aborted[start + place : end : _ABORTED_NUMBERS] for place in range(3)]
        found = [AbortedTransaction(*row) for row in zip(*columns, strict=True) if row[1] < end_offset]
        if len(found) > count_max:
            end_offset = sorted(each.first_offset for each in found)[count_max]
            found = [each for each in found if each.first_offset < end_offset]
        return found, end_offset

    def remove_markers(self, first_offset: int, last_offset: int) -> None:
        """Remove the markers in this range, because a segment stores them now, or their extents are dropped."""
        start, stop = self._find_marker(first_offset), self._find_marker(last_offset + 1)
        del self._markers[start * _MARKER_NUMBERS : stop * _MARKER_NUMBERS]

    def remove_aborted(self, first_offset: int, last_offset: int) -> int:
        """Remove the aborted transactions that lie in this range as a whole; return how many there were.

        No aborted record is left in the range, but other transactions may have records outside of it. A reader with
        older extents cannot mix them with the new extent of this range, because it overlaps them.
        """
        start = self._find_aborted(first_offset)
        stop = self._after_aborted(start, last_offset + 1)
        kept = array("q")
        for row in range(start, stop):
            numbers = self._aborted[row * _ABORTED_NUMBERS : (row + 1) * _ABORTED_NUMBERS]
            if not (first_offset <= numbers[1] and numbers[2] <= last_offset):
                kept.extend(numbers)
        self._aborted[start * _ABORTED_NUMBERS : stop * _ABORTED_NUMBERS] = kept
        return stop - start - len(kept) // _ABORTED_NUMBERS

    def remove_before(self, offset: int) -> int:
        """Remove markers and aborted transactions that end before `offset`; return how many aborted ones there were.

        The log has no records before `offset` any more.
        """
        self.remove_markers(0, offset - 1)
        count = self._find_aborted(offset)
        del self._aborted[: count * _ABORTED_NUMBERS]
        return count

    def columns(self) -> list[bytes]:
        """The rows of all markers as bytes, and those of all aborted transactions."""
        return [column_bytes(self._markers), column_bytes(self._aborted)]

    @classmethod
    def of_columns(cls, opened: dict[int, int], data: Sequence[bytes]) -> "PartitionTransactions":
        """The transactions with these `open` and `columns`; `ValueError` if the columns are not whole rows."""
        transactions = cls()
        transactions.open = opened
        markers, aborted = data
        read_column(transactions._markers, markers)
        read_column(transactions._aborted, aborted)
        if len(transactions._markers) % _MARKER_NUMBERS or len(transactions._aborted) % _ABORTED_NUMBERS:
            raise ValueError(f"{len(markers)} bytes of markers and {len(aborted)} of aborted transactions")
        return transactions

    def _find_marker(self, offset: int) -> int:
        """The row of the first marker at this offset or above."""
        numbers = self._markers
        return bisect_left(range(self.marker_count), offset, key=lambda row: numbers[row * _MARKER_NUMBERS])

    def _find_aborted(self, offset: int) -> int:
        """The row of the first aborted transaction whose last offset is this one or above."""
        numbers = self._aborted
        return bisect_left(range(self.aborted_count), offset, key=lambda row: numbers[row * _ABORTED_NUMBERS + 2])

    def _after_aborted(self, first_row: int, end_offset: int) -> int:
        """The row after the last one, from `first_row` on, whose transaction may have begun before the offset."""
        rows, numbers = range(self.aborted_count), self._aborted
        found = bisect_left(rows, end_offset, first_row, key=lambda row: numbers[row * _ABORTED_NUMBERS + 3])
        return min(found + 1, self.aborted_count)
