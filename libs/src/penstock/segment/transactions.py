"""Transactions in segments: the control batches of markers, and the aborted transactions of a log (ADR 0012)."""

from bisect import bisect_left
from collections.abc import Iterable

from penstock.contracts.batches import MARKER_BYTES, AbortedTransaction, Marker
from penstock.kafkawire.control import CONTROL_BATCH_BYTES, control_batch

assert MARKER_BYTES == CONTROL_BATCH_BYTES


def marker_batch(marker: Marker, leader_epoch: int = 0) -> bytes:
    """The control batch of a marker, with its real offset; only compacted segments contain such batches."""
    return control_batch(
        marker.offset,
        marker.producer_id,
        marker.producer_epoch,
        committed=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=marker.timestamp,
        leader_epoch=leader_epoch,
    )


class Aborted:
    """The aborted transactions of one log; the input may contain duplicates."""

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        firsts = {(each.producer_id, each.last_offset): each.first_offset for each in transactions}
        # Transactions of one producer do not overlap, so first offsets and last offsets have the same order.
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        for producer_id, last_offset in sorted(firsts):
            self._firsts.setdefault(producer_id, []).append(firsts[producer_id, last_offset])
            self._lasts.setdefault(producer_id, []).append(last_offset)

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def has(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional batch of this producer at this offset was aborted."""
        first_offset = self._first_offset(producer_id, offset)
        return first_offset is not None and first_offset <= offset

    def begin_of(self, producer_id: int, marker_offset: int) -> int | None:
        """The first offset of the aborted transaction whose marker is at this offset, None if there is none."""
        lasts = self._lasts.get(producer_id, ())
        place = bisect_left(lasts, marker_offset)
        is_end = place < len(lasts) and lasts[place] == marker_offset
        return self._firsts[producer_id][place] if is_end else None

    def _first_offset(self, producer_id: int, offset: int) -> int | None:
        """The first offset of the producer's first transaction that ends at or after an offset."""
        lasts = self._lasts.get(producer_id, ())
        place = bisect_left(lasts, offset)
        return self._firsts[producer_id][place] if place < len(lasts) else None
