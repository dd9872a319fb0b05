"""Selects the batches to leave out of a run with only ended transactions: aborted records, and markers without effect.

The marker of an aborted transaction shows readers where to stop skipping the records of its producer. It stays while
the state machine reports that transaction. If the whole transaction lies in one run, the state machine then drops it,
and its marker is left out. No reader needs the marker of a committed transaction. Merging keeps it like all committed
batches, and key compaction leaves it out.
"""

from collections.abc import Iterable

from penstock.contracts.batches import AbortedTransaction
from penstock.contracts.codec import Buffer
from penstock.kafkawire.control import read_control_batch
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import CONTROL, TRANSACTIONAL
from penstock.segment.transactions import Aborted


class Decided:
    """For a run from `first_offset` on; `aborted` has all aborted transactions with records or markers in the run."""

    def __init__(self, first_offset: int, aborted: Iterable[AbortedTransaction], *, keeps_commits: bool = True) -> None:
        self._first_offset = first_offset
        self._aborted = Aborted(aborted)
        self._keeps_commits = keeps_commits

    def leaves_out(self, attributes: int, producer_id: int, offset: int, batch: Buffer) -> bool:
        """Whether to leave out a batch with these header fields and this real offset."""
        if not attributes & TRANSACTIONAL:
            return False
        if attributes & CONTROL:
            return self._is_needless(producer_id, offset, batch)
        return self._aborted.has(producer_id, offset)

    def _is_needless(self, producer_id: int, offset: int, batch: Buffer) -> bool:
        begin = self._aborted.begin_of(producer_id, offset)
        if begin is not None:
            return begin >= self._first_offset
        if self._keeps_commits:
            return False
        try:
            end = read_control_batch(batch)
        except DecodeError:
            return False
        return end is not None and end.committed
