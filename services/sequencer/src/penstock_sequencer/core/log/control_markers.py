"""Markers: the control records that end a transaction, one in each partition with records of that transaction.

A marker is an extent without bytes: it takes one offset, its slot is `MARKERS`, which is no segment's slot, and its
length is 0. The partition's `transactions` hold its content. Readers make the control batch from that content, until a
compaction stores the marker among the records around it.
"""

from penstock.contracts.batches import NO_SEGMENT_ID, Marker, SegmentRef
from penstock.contracts.ids import SegmentId
from penstock.contracts.levels import ABORTED_BATCHES_LEVEL
from penstock_sequencer.core.log.producers import remove_batches
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.limits import INTEGER_MAX
from penstock_sequencer.core.state.segments import MARKERS

MARKER_REF = SegmentRef(NO_SEGMENT_ID, 0, 0, "", "")
NO_TIMESTAMP = -INTEGER_MAX - 1  # below every timestamp, so that a search by time never finds a marker


def write_marker(
    state: State, partition: Partition, producer_id: int, epoch: int, *, committed: bool, changes: Changes
) -> None:
    """End the producer's transaction, which is open in the partition, by a marker at the end of the log."""
    transactions = partition.transactions
    assert transactions is not None, "a transaction is open"
    offset = partition.high_watermark
    key = (partition.topic_id, partition.number)
    if key not in changes.advanced and partition.topic_id in state.topics_by_id:
        changes.advanced[key] = (partition, offset)
    partition.extents.append(offset, offset, MARKERS, 0, 0, NO_TIMESTAMP)
    partition.high_watermark = offset + 1
    state.extent_count += 1
    first_offset = transactions.open[producer_id]
    transactions.end(Marker(offset, producer_id, epoch, committed, state.leader_epoch, state.clock_ms, first_offset))
    state.aborted_count += not committed
    if not committed and state.level >= ABORTED_BATCHES_LEVEL:
        remove_batches(partition, producer_id)


def segment_id(state: State, slot: int) -> SegmentId:
    """The id of the segment in which an extent lies; NO_SEGMENT_ID for a marker."""
    return NO_SEGMENT_ID if slot == MARKERS else state.segments.id(slot)


def is_marker(partition: Partition, row: int) -> bool:
    """Whether this extent of the partition is a marker."""
    return partition.extents.segments[row] == MARKERS


def marker_at(partition: Partition, row: int) -> Marker:
    """The content of the marker in this row of the extents."""
    assert partition.transactions is not None, "there is a marker"
    return partition.transactions.marker(partition.extents.base_offsets[row])


def markers_among(partition: Partition, first_row: int, stop_row: int) -> list[Marker]:
    """The content of the markers among these rows."""
    if partition.transactions is None:
        return []
    return [marker_at(partition, row) for row in range(first_row, stop_row) if is_marker(partition, row)]


def remove_dropped(state: State, partition: Partition) -> None:
    """After a drop of extents, remove the transactions that end before the first remaining extent."""
    if partition.transactions is not None:
        columns = partition.extents
        start = columns.base_offsets[columns.head] if columns else partition.high_watermark
        state.aborted_count -= partition.transactions.remove_before(start)
