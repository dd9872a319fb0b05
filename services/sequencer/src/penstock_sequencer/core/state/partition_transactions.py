"""What one partition knows of transactions: which are open, their markers, and which were aborted."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from penstock.contracts.batches import AbortedTransaction, Marker
from penstock_sequencer.core.state.columns import column_bytes, read_column

# Rows of numbers lie one after the other, for most partitions have few of them and there are many partitions.
_MARKER_NUMBERS = 5  # offset, producer id, (coordinator epoch, epoch, committed), clock, first offset
_ABORTED_NUMBERS = 4  # producer id, first offset, last offset, stable offset
_EPOCH_BITS = 16


class PartitionTransactions:
    """A partition has one from its first transaction on.

    `open` is each open transaction's first offset in the partition by its producer id, in the order of these offsets,
    since who writes later begins later; so the first of them is the last stable offset. Markers are kept while their
    extents are (40 bytes each), in the order of their offsets. Aborted transactions are kept while records of them may
    be there (32 bytes each), in the order of their last offsets, which are their markers'. A stable offset is where the
    records were decided up to when the transaction was aborted: who is aborted after it began there or later.
    """

    __slots__ = ("_aborted", "_markers", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._markers = array("q")
        self._aborted = array("q")

    @property
    def marker_count(self) -> int:
        """How many markers there are."""
        return len(self._markers) // _MARKER_NUMBERS

    @property
    def aborted_count(self) -> int:
        """How many aborted transactions are known."""
        return len(self._aborted) // _ABORTED_NUMBERS

    def end(self, marker: Marker) -> None:
        """The producer's transaction is over with this marker, whose offset lies above all others."""
        said = (marker.coordinator_epoch << _EPOCH_BITS | marker.producer_epoch) << 1 | marker.committed
        self._markers.extend((marker.offset, marker.producer_id, said, marker.timestamp, marker.first_offset))
        del self.open[marker.producer_id]
        if not marker.committed:
            stable = next(iter(self.open.values()), marker.offset + 1)
            self._aborted.extend((marker.producer_id, marker.first_offset, marker.offset, stable))

    def marker(self, offset: int) -> Marker:
        """The marker at this offset; there must be one."""
        place = self._find_marker(offset) * _MARKER_NUMBERS
        found, producer_id, said, clock_ms, first_offset = self._markers[place : place + _MARKER_NUMBERS]
        assert found == offset, f"no marker at {offset}"
        epochs, committed = said >> 1, bool(said & 1)
        epoch = epochs & ((1 << _EPOCH_BITS) - 1)
        return Marker(offset, producer_id, epoch, committed, epochs >> _EPOCH_BITS, clock_ms, first_offset)

    def aborted(self, offset: int, end_offset: int, count_max: int) -> tuple[list[AbortedTransaction], int]:
        """Aborted transactions with records from `offset` to before `end_offset`, by their last offsets.

        They are all that there are below the offset that comes with them: an earlier end, where they are too many.
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
        """What markers in this range say is stored somewhere now, or their extents are dropped."""
        start, stop = self._find_marker(first_offset), self._find_marker(last_offset + 1)
        del self._markers[start * _MARKER_NUMBERS : stop * _MARKER_NUMBERS]

    def remove_aborted(self, first_offset: int, last_offset: int) -> int:
        """Nothing that was aborted is left in this range; how many transactions are forgotten, of which it holds all.

        Of others there may be records elsewhere. And whoever holds extents from before cannot mix them with the one
        that takes this range: it lies across them.
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
        """The log has nothing before `offset` any more; how many aborted transactions are forgotten."""
        self.remove_markers(0, offset - 1)
        count = self._find_aborted(offset)
        del self._aborted[: count * _ABORTED_NUMBERS]
        return count

    def columns(self) -> list[bytes]:
        """The numbers of all markers, and those of all aborted transactions."""
        return [column_bytes(self._markers), column_bytes(self._aborted)]

    @classmethod
    def of_columns(cls, opened: dict[int, int], data: Sequence[bytes]) -> "PartitionTransactions":
        """What `open` and `columns` gave; `ValueError` if it did not."""
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
        """Behind the last row, from this one on, whose transaction may have begun before the offset."""
        rows, numbers = range(self.aborted_count), self._aborted
        found = bisect_left(rows, end_offset, first_row, key=lambda row: numbers[row * _ABORTED_NUMBERS + 3])
        return min(found + 1, self.aborted_count)
