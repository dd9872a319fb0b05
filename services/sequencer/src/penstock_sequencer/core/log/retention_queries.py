"""Queries of janitors and administrators: logs with overdue records, recoverable topics, and the cluster's defaults."""

from itertools import islice

from penstock.contracts.configs.topics import FOR_EVER, RetentionConfigs
from penstock.contracts.queries.janitor import OverdueLog, RetentionQuery, RetentionView
from penstock.contracts.queries.topics import (
    ClusterConfigsQuery,
    ClusterConfigsView,
    DeletedTopicsQuery,
    DeletedTopicsView,
    DeletedTopicView,
)
from penstock_sequencer.core.log.reclaim import agreed_ms, count_trimmed
from penstock_sequencer.core.log.retention import count_expired, overdue_ms, start_inside, topic_retention
from penstock_sequencer.core.state.cluster import Partition, RecoverableTopic, State

_KEEPS_ALL = RetentionConfigs(FOR_EVER, FOR_EVER)
_ALL_TOPICS = -1


def retention(state: State, query: RetentionQuery) -> RetentionView:
    """Logs with records to drop; after a bounded walk the answer ends, and names the topic to continue with."""
    found: list[OverdueLog] = []
    limits = state.limits.answers
    clock_ms = agreed_ms(state, query.now_ms)
    asked = counted = 0
    first = min(max(query.first_topic, 0), len(state.topics_by_id))
    stop = first + limits.overdue_topics_asked_max
    for place, topic in enumerate(islice(state.topics_by_id.values(), first, stop), first):
        configs = topic_retention(state, topic.topic_id)
        if configs == _KEEPS_ALL:
            continue
        if asked and asked + len(topic.partitions) > limits.overdue_partitions_asked_max:
            return RetentionView(state.sequence, state.clock_ms, found, next_topic=place)
        asked += len(topic.partitions)
        for partition in topic.partitions:
            count_max = max(limits.overdue_extents_counted_max - counted, 1)
            count = _count_overdue(state, clock_ms, partition, configs, count_max)
            if not count and not _starts_too_early(state, partition, configs):
                continue
            if len(found) == state.limits.log.logs_per_command_max:
                return RetentionView(state.sequence, state.clock_ms, found, next_topic=place)
            counted += count
            found.append(_overdue_log(state, clock_ms, partition, configs, count))
    next_topic = stop if stop < len(state.topics_by_id) else _ALL_TOPICS
    return RetentionView(state.sequence, state.clock_ms, found, next_topic=next_topic)


def _count_overdue(state: State, clock_ms: int, partition: Partition, configs: RetentionConfigs, count_max: int) -> int:
    """How many extents must be dropped; 0 for a log that is still being trimmed, which is checked after that."""
    if not partition.extents or count_trimmed(partition):
        return 0
    return count_expired(state, clock_ms, partition, configs, count_max)


def _starts_too_early(state: State, partition: Partition, configs: RetentionConfigs) -> bool:
    """Whether the log must start later in its first extent, which stays."""
    return not count_trimmed(partition) and start_inside(state, partition, configs) > partition.log_start_offset


def _overdue_log(
    state: State, clock_ms: int, partition: Partition, configs: RetentionConfigs, count: int
) -> OverdueLog:
    columns = partition.extents
    return OverdueLog(
        partition.topic_id,
        partition.number,
        count,
        sum(columns.lengths[columns.head : columns.head + count]),
        max(overdue_ms(state, clock_ms, partition, configs, columns.head), 0),
    )


def deleted_topics(state: State, query: DeletedTopicsQuery) -> DeletedTopicsView:
    """The recoverable topics, in the order in which they were deleted."""
    topics = [_deleted_topic(each) for each in state.recoverable.values()]
    return DeletedTopicsView(state.sequence, state.clock_ms, topics)


def _deleted_topic(recoverable: RecoverableTopic) -> DeletedTopicView:
    topic = recoverable.topic
    return DeletedTopicView(
        topic.name,
        topic.topic_id,
        len(topic.partitions),
        sum(partition.size_bytes for partition in topic.partitions),
        recoverable.deleted_ms,
        recoverable.until_ms,
    )


def cluster_configs(state: State, query: ClusterConfigsQuery) -> ClusterConfigsView:
    """The defaults of the cluster that were set."""
    return ClusterConfigsView(state.sequence, state.cluster_configs)
