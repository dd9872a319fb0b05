"""The true content of a partition, batch by batch, from the commits that the oracle has read."""

from bisect import bisect_right
from dataclasses import dataclass, field

from penstock.contracts.batches import BatchMeta
from penstock.kafkawire.records import CONTROL


@dataclass(slots=True)
class LogBatch:
    """One committed batch, or the marker of a transaction's end."""

    base_offset: int
    meta: BatchMeta
    data: bytes  # a batch as produced, or a marker as readers get it
    is_open: bool = False  # its transaction has not ended
    is_aborted: bool = False  # of a marker: it ends an aborted transaction

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.meta.record_count - 1

    @property
    def is_marker(self) -> bool:
        """Whether this is a marker."""
        return self.meta.attributes & CONTROL != 0


@dataclass
class PartitionLog:
    """The batches of a partition, and the state of its producers."""

    batches: list[LogBatch] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0
    next_sequences: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer -> epoch, sequence
    open: dict[int, list[LogBatch]] = field(default_factory=dict)  # of open transactions, by producer id

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((batches[0].base_offset for batches in self.open.values()), default=self.end)

    def at(self, offset: int) -> LogBatch | None:
        """The batch that holds an offset."""
        if not 0 <= offset < self.end:
            return None
        return self.batches[bisect_right(self.bases, offset) - 1]

    def may_skip(self, first: int, stop: int) -> bool:
        """Whether readers may get no records between two offsets."""
        rows = range(bisect_right(self.bases, first) - 1, bisect_right(self.bases, stop - 1))
        return all(self.batches[row].is_aborted for row in rows)

    def append(self, batch: LogBatch) -> None:
        """Add a batch at the end."""
        self.bases.append(batch.base_offset)
        self.batches.append(batch)
        self.end = batch.base_offset + batch.meta.record_count
