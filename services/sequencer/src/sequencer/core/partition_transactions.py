"""What one partition knows of transactions: which are open, their markers, and which were aborted; in columns."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from penstock.contracts.batches import AbortedTransaction, Marker
from sequencer.core.columns import column_bytes, read_columns


class PartitionTransactions:
    """A partition has one from its first transaction on.

    `open` is each open transaction's first offset in the partition by its producer id, in the order of these offsets,
    since who writes later begins later; so the first of them is the last stable offset. Markers are kept while their
    extents are (39 bytes each), in the order of their offsets. Aborted transactions are kept while records of them may
    be there (32 bytes each), in the order of their last offsets, which are their markers'. `aborted_stables` is where
    the records were decided up to when each was aborted: who is aborted after it began there or later.
    """

    __slots__ = (
        "aborted_firsts",
        "aborted_lasts",
        "aborted_producers",
        "aborted_stables",
        "coordinator_epochs",
        "marker_clocks_ms",
        "marker_commits",
        "marker_epochs",
        "marker_firsts",
        "marker_offsets",
        "marker_producers",
        "open",
    )

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.marker_offsets = array("q")
        self.marker_producers = array("q")
        self.marker_epochs = array("h")
        self.marker_commits = array("B")
        self.coordinator_epochs = array("i")
        self.marker_clocks_ms = array("q")
        self.marker_firsts = array("q")
        self.aborted_producers = array("q")
        self.aborted_firsts = array("q")
        self.aborted_lasts = array("q")
        self.aborted_stables = array("q")

    def end(self, marker: Marker) -> None:
        """The producer's transaction is over with this marker, whose offset lies above all others."""
        self.marker_offsets.append(marker.offset)
        self.marker_producers.append(marker.producer_id)
        self.marker_epochs.append(marker.producer_epoch)
        self.marker_commits.append(marker.committed)
        self.coordinator_epochs.append(marker.coordinator_epoch)
        self.marker_clocks_ms.append(marker.timestamp)
        self.marker_firsts.append(marker.first_offset)
        del self.open[marker.producer_id]
        if not marker.committed:
            self.aborted_producers.append(marker.producer_id)
            self.aborted_firsts.append(marker.first_offset)
            self.aborted_lasts.append(marker.offset)
            self.aborted_stables.append(next(iter(self.open.values()), marker.offset + 1))

    def marker(self, offset: int) -> Marker:
        """The marker at this offset; there must be one."""
        place = bisect_left(self.marker_offsets, offset)
        assert self.marker_offsets[place] == offset, f"no marker at {offset}"
        return Marker(
            offset,
            self.marker_producers[place],
            self.marker_epochs[place],
            bool(self.marker_commits[place]),
            self.coordinator_epochs[place],
            self.marker_clocks_ms[place],
            self.marker_firsts[place],
        )

    def aborted(self, offset: int, end_offset: int, count_max: int) -> tuple[list[AbortedTransaction], int]:
        """Aborted transactions with records from `offset` to before `end_offset`, by their last offsets.

        They are all that there are below the offset that comes with them: an earlier end, where they are too many.
        """
        first = bisect_left(self.aborted_lasts, offset)
        stop = min(bisect_left(self.aborted_stables, end_offset, first) + 1, len(self.aborted_lasts))
        places = [place for place in range(first, stop) if self.aborted_firsts[place] < end_offset]
        if len(places) > count_max:
            end_offset = sorted(self.aborted_firsts[place] for place in places)[count_max]
            places = [place for place in places if self.aborted_firsts[place] < end_offset]
        found = [
            AbortedTransaction(self.aborted_producers[place], self.aborted_firsts[place], self.aborted_lasts[place])
            for place in places
        ]
        return found, end_offset

    def forget_markers(self, first_offset: int, last_offset: int) -> None:
        """What markers in this range say is stored somewhere now, or their extents are dropped."""
        start = bisect_left(self.marker_offsets, first_offset)
        stop = bisect_right(self.marker_offsets, last_offset)
        if start < stop:
            for column in self._marker_columns():
                del column[start:stop]

    def forget_before(self, offset: int) -> int:
        """The log has nothing before `offset` any more; how many aborted transactions are forgotten."""
        self.forget_markers(0, offset - 1)
        count = bisect_left(self.aborted_lasts, offset)
        for column in self._aborted_columns():
            del column[:count]
        return count

    def columns(self) -> list[bytes]:
        """The columns as bytes: those of markers, then those of aborted transactions."""
        return [column_bytes(column) for column in (*self._marker_columns(), *self._aborted_columns())]

    @classmethod
    def of_columns(cls, opened: dict[int, int], data: Sequence[bytes]) -> "PartitionTransactions":
        """What `open` and `columns` gave; `ValueError` if these are no columns."""
        transactions = cls()
        transactions.open = opened
        markers, aborted = transactions._marker_columns(), transactions._aborted_columns()
        read_columns(markers, data[: len(markers)])
        read_columns(aborted, data[len(markers) :])
        return transactions

    def _marker_columns(self) -> "tuple[array[int], ...]":
        return (
            self.marker_offsets,
            self.marker_producers,
            self.marker_epochs,
            self.marker_commits,
            self.coordinator_epochs,
            self.marker_clocks_ms,
            self.marker_firsts,
        )

    def _aborted_columns(self) -> "tuple[array[int], ...]":
        return self.aborted_producers, self.aborted_firsts, self.aborted_lasts, self.aborted_stables
