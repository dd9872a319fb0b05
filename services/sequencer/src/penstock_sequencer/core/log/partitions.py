"""Partitions: how to make and find them, and the offsets that derive from their state."""

from penstock.contracts.ids import TopicId
from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.limits import PARTITION_INDEX_MAX


def new_partition(state: State, topic_id: TopicId, number: int) -> Partition:
    """A partition without records, entered in `State.partitions_by_index`."""
    partition = Partition(topic_id, number, Extents(), {})
    if state.level >= PRODUCERS_LEVEL:
        partition.first_new_producer_id = state.next_producer_id
    enter_partition(state, partition)
    return partition


def enter_partition(state: State, partition: Partition) -> None:
    """Give the partition an index that no other partition has now."""
    index = state.next_index
    while index in state.partitions_by_index:
        index = 0 if index == PARTITION_INDEX_MAX else index + 1
    state.next_index = 0 if index == PARTITION_INDEX_MAX else index + 1
    partition.index = index
    state.partitions_by_index[index] = partition


def find_partition(state: State, topic_id: TopicId, number: int) -> Partition | None:
    """The partition; None if there is no such topic, or if it has too few partitions."""
    topic = state.topics_by_id.get(topic_id)
    if topic is None or not 0 <= number < len(topic.partitions):
        return None
    return topic.partitions[number]


def find_kept_partition(state: State, topic_id: TopicId, number: int) -> Partition | None:
    """As `find_partition`, but also for a recoverable topic, because compaction of its extents continues."""
    recoverable = state.recoverable.get(topic_id)
    if recoverable is None:
        return find_partition(state, topic_id, number)
    partitions = recoverable.topic.partitions
    return partitions[number] if 0 <= number < len(partitions) else None


def first_kept_offset(partition: Partition) -> int:
    """The base offset of the extent that holds the log's start: the log start offset, or a little less."""
    columns = partition.extents
    row = columns.find_offset(partition.log_start_offset)
    return columns.base_offsets[row] if row < columns.end else partition.high_watermark


def last_stable_offset(partition: Partition) -> int:
    """The first offset of the oldest open transaction, or the high watermark; all records below it are decided."""
    transactions = partition.transactions
    if transactions is None or not transactions.open:
        return partition.high_watermark
    # DeleteRecords may have moved the log start beyond that offset.
    return max(next(iter(transactions.open.values())), partition.log_start_offset)
