"""A partition's extents in columns: appended at the end, dropped from the front, found by their last offset."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from penstock_sequencer.core.state.columns import column_bytes, read_columns

BLOCK_ROWS = 1_024  # a million rows have about as many blocks: 0.1 ms to search
_NEVER = -(2**63)
_DROPPED_MIN = 64  # below this many dropped rows, copying the columns costs more than it frees


class Extents:
    """Rows (base offset, last offset, segment slot, position, length, max timestamp), about 45 bytes each.

    Rows before `head` are dropped. They are cut off when they are more than half, so a drop costs O(1) amortised.

    `highest` is the running maximum of the timestamps. After a drop it may be too high, but never too low. So a search
    by time starts where `highest` reaches the time, and misses no row.

    `highest` stays too high for long after the drop of a record from far in the future. Then the search skips blocks of
    rows by `_maxima`, the newest timestamp of each full block. A search makes these; they are no part of the state.
    """

    __slots__ = (
        "_block_rows",
        "_maxima",
        "base_offsets",
        "head",
        "highest",
        "last_offsets",
        "lengths",
        "positions",
        "segments",
        "timestamps",
    )

    def __init__(self, block_rows: int = BLOCK_ROWS) -> None:
        self._block_rows = block_rows
        self.head = 0
        self.base_offsets = array("q")
        self.last_offsets = array("q")
        self.segments = array("I")
        self.positions = array("I")
        self.lengths = array("I")
        self.timestamps = array("q")
        self.highest = array("q")
        self._maxima: list[int] = []

    def __len__(self) -> int:
        return len(self.last_offsets) - self.head

    @property
    def end(self) -> int:
        """The number of the last row plus one."""
        return len(self.last_offsets)

    def append(
        self, base_offset: int, last_offset: int, segment: int, position: int, length: int, timestamp: int
    ) -> None:
        """Append a row, whose offsets lie above all others."""
        highest = self.highest
        highest.append(highest[-1] if highest and highest[-1] > timestamp else timestamp)
        self.base_offsets.append(base_offset)
        self.last_offsets.append(last_offset)
        self.segments.append(segment)
        self.positions.append(position)
        self.lengths.append(length)
        self.timestamps.append(timestamp)

    def find_offset(self, offset: int) -> int:
        """The first row whose last offset is `offset` or above; `end` if there is none."""
        return bisect_left(self.last_offsets, offset, self.head)

    def find_timestamp(self, timestamp: int, first: int = 0) -> int:
        """The first row from `first` on whose max timestamp is `timestamp` or later; `end` if there is none."""
        timestamps, end, block_rows = self.timestamps, self.end, self._block_rows
        row = bisect_left(self.highest, timestamp, max(first, self.head))
        while row < end and timestamps[row] < timestamp:
            row += 1
            if row % block_rows == 0:
                row = self._skip_blocks(row, timestamp)
        return row

    def find_latest(self, first: int = 0) -> int:
        """The first row with the highest max timestamp from `first` on; `end` if there are no rows."""
        first = max(first, self.head)
        if first >= self.end:
            return self.end
        row = self.find_timestamp(self.highest[-1], first)
        if row < self.end:
            return row
        return self.find_timestamp(self._newest(first), first)

    def drop_first(self, count: int) -> "tuple[array[int], array[int]]":
        """Drop the first `count` rows; return their segment slots and their lengths."""
        head = self.head
        dropped = self.segments[head : head + count], self.lengths[head : head + count]
        self.head = head + count
        if not len(self) or (self.head > _DROPPED_MIN and self.head * 2 > len(self.last_offsets)):
            self._cut()
        return dropped

    def replace(self, spans: "Sequence[tuple[int, int, tuple[int, ...]]]") -> None:
        """Replace each span of rows by one row.

        A span is (first row, row after its last, values of the new row). The spans are in order and do not overlap.
        Each column is moved once, however many spans there are.
        """
        first, stop = spans[0][0], spans[-1][1]
        del self._maxima[first // self._block_rows :]
        highest = self.highest
        for column, values in zip(self._columns(), zip(*(values for _, _, values in spans), strict=True), strict=False):
            for (start, _, _), value in zip(spans, values, strict=True):
                column[start] = value
        for start, end, _ in spans:
            highest[start] = highest[end - 1]  # correct for the rows after the span; corrected for this row below
        for column in self._columns():
            kept = array(column.typecode)
            for (_, end, _), (start, _, _) in pairwise(spans):
                kept.extend(column[end : start + 1])
            column[first + 1 : stop] = kept
        removed = 0
        for start, end, _ in spans:
            self._mend_highest(start - removed)
            removed += end - start - 1

    def _mend_highest(self, row: int) -> None:
        """Correct the running maximum from `row` on, whose timestamp has changed."""
        highest, timestamps = self.highest, self.timestamps
        running = timestamps[row]
        if row > self.head and highest[row - 1] > running:
            running = highest[row - 1]
        while highest[row] != running:
            highest[row] = running
            row += 1
            if row == len(highest):
                return
            running = max(running, timestamps[row])

    def columns(self) -> list[bytes]:
        """The live rows of the columns as bytes, in the order of `_columns`."""
        return [column_bytes(column[self.head :]) for column in self._columns()]

    @classmethod
    def of_columns(cls, data: Sequence[bytes]) -> "Extents":
        """The rows that `columns` returned; `ValueError` if the data does not fit."""
        extents = cls()
        read_columns(extents._columns(), data)
        return extents

    def _columns(self) -> "tuple[array[int], ...]":
        return (
            self.base_offsets,
            self.last_offsets,
            self.segments,
            self.positions,
            self.lengths,
            self.timestamps,
            self.highest,
        )

    def _skip_blocks(self, row: int, timestamp: int) -> int:
        """The first row of the first block, from that of `row` on, that has the timestamp or is not full."""
        maxima, block_rows = self._block_maxima(), self._block_rows
        block = row // block_rows
        while block < len(maxima) and maxima[block] < timestamp:
            block += 1
        return block * block_rows

    def _newest(self, first: int) -> int:
        """The highest timestamp from row `first` on."""
        timestamps, maxima, block_rows = self.timestamps, self._block_maxima(), self._block_rows
        block = -(-first // block_rows)
        last = max(first, len(maxima) * block_rows)
        return max(*timestamps[first : block * block_rows], *maxima[block:], *timestamps[last:], _NEVER)

    def _block_maxima(self) -> list[int]:
        maxima, timestamps, block_rows = self._maxima, self.timestamps, self._block_rows
        for start in range(len(maxima) * block_rows, len(timestamps) - block_rows + 1, block_rows):
            maxima.append(max(timestamps[start : start + block_rows]))
        return maxima

    def _cut(self) -> None:
        self._maxima.clear()
        for column in self._columns():
            del column[: self.head]
        self.head = 0
