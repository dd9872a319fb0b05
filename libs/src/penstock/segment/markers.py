"""Batches of transactions' markers, which are stored nowhere until they are compacted (ADR 0012)."""

from penstock.contracts.batches import MARKER_BYTES, Marker
from penstock.kafkawire.control import CONTROL_BATCH_BYTES, control_batch

assert MARKER_BYTES == CONTROL_BATCH_BYTES


def marker_batch(marker: Marker, leader_epoch: int = 0) -> bytes:
    """The control batch of a marker, with its real offset."""
    return control_batch(
        marker.offset,
        marker.producer_id,
        marker.producer_epoch,
        committed=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=marker.timestamp,
        leader_epoch=leader_epoch,
    )
