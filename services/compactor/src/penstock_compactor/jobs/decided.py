"""What is left out of a run all of whose transactions are decided: what was aborted, and markers that mean nothing.

The marker of an aborted transaction tells readers where to stop leaving out what its producer wrote. It stays as long
as they may be told of that transaction: it goes when the transaction lies in one run as a whole, of which the state
machine then knows no more. Nobody needs the marker of a committed one; merging leaves it where it is, as all that was
committed, and key compaction does not.
"""

from collections.abc import Iterable

from penstock.contracts.batches import AbortedTransaction
from penstock.contracts.codec import Buffer
from penstock.kafkawire.control import read_control_batch
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import CONTROL, TRANSACTIONAL
from penstock.segment.transactions import Aborted


class Decided:
    """For a run from `first_offset` on; `aborted` are all that were, of transactions with anything in it."""

    def __init__(self, first_offset: int, aborted: Iterable[AbortedTransaction], *, keeps_commits: bool = True) -> None:
        self._first_offset = first_offset
        self._aborted = Aborted(aborted)
        self._keeps_commits = keeps_commits

    def leaves_out(self, attributes: int, producer_id: int, offset: int, batch: Buffer) -> bool:
        """Whether the batch goes that has these in its header, and this as its real offset."""
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
