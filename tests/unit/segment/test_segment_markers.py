"""Markers' batches: what the state machine tells of a marker, as a batch that clients know."""

from penstock.contracts.batches import MARKER_BYTES, Marker
from penstock.kafkawire.control import EndOfTransaction, read_control_batch
from penstock.kafkawire.records import read_batch_header
from penstock.segment.markers import marker_batch


def test_a_markers_batch_says_what_the_marker_does() -> None:
    """Each field at its place: producer, epochs, outcome, time and offset."""
    batch = marker_batch(Marker(100, 7, 3, False, 9, 1_700_000_000_000, 90), leader_epoch=5)
    header = read_batch_header(batch)
    assert len(batch) == MARKER_BYTES
    assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (100, 5, 1_700_000_000_000)
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert read_control_batch(batch) == EndOfTransaction(committed=False, coordinator_epoch=9)
    assert read_control_batch(marker_batch(Marker(100, 7, 3, True, 9, 0, 90))) == EndOfTransaction(True, 9)
