"""Queries of the state: one pure function per query name; each answer carries the journal sequence that it reflects."""

from collections.abc import Callable
from typing import Any

from penstock.contracts.batches import MARKER_BYTES, AbortedTransaction, Extent, SegmentRef
from penstock.contracts.commands import (
    AlterClientMetrics,
    AlterClientQuotas,
    AlterConfigs,
    AlterGroupConfigs,
    CreatePartitions,
    CreateTopic,
    Outcome,
    Rejected,
)
from penstock.contracts.queries.log import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    OffsetFound,
    OffsetOf,
    OffsetsQuery,
    OffsetsView,
    PartitionPlan,
    Plan,
    PlanPartition,
    PlanQuery,
)
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView, ValidateQuery, ValidateView
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.all_groups.queries import (
    describe_groups,
    group_offsets,
    group_wait,
    groups,
    heartbeat,
    watched_members,
)
from penstock_sequencer.core.groups.consumer_queries import consumer_groups, consumer_heartbeat
from penstock_sequencer.core.groups.streams.queries import streams_groups, streams_heartbeat
from penstock_sequencer.core.groups.timers import next_deadline_ms
from penstock_sequencer.core.log.control_markers import MARKER_REF, is_marker, markers_among
from penstock_sequencer.core.log.partitions import find_partition, last_stable_offset
from penstock_sequencer.core.log.retention_queries import cluster_configs, deleted_topics, retention
from penstock_sequencer.core.log.segment_queries import logs, segment_extents, segments
from penstock_sequencer.core.maintenance.queries import dead, known_segments, usage
from penstock_sequencer.core.maintenance.surveys import group_survey, topic_survey
from penstock_sequencer.core.security.queries import security
from penstock_sequencer.core.security.tokens import delegation_tokens
from penstock_sequencer.core.share.dead_letters import dead_letter_groups, dead_letters
from penstock_sequencer.core.share.offsets import share_offsets
from penstock_sequencer.core.share.queries import group_configs, share_groups, share_heartbeat, share_partitions
from penstock_sequencer.core.state.cluster import Partition, State, Topic
from penstock_sequencer.core.state.pages import NUMBER_BYTES, page_of, text_bytes
from penstock_sequencer.core.state.segments import MARKERS
from penstock_sequencer.core.topics.client_metrics import check_alter_client_metrics, client_metrics
from penstock_sequencer.core.topics.client_quotas import check_alter_client_quotas, client_quotas, log_sizes
from penstock_sequencer.core.topics.configs import check_alter_configs, check_alter_group_configs
from penstock_sequencer.core.topics.topics import check_create_partitions, check_create_topic
from penstock_sequencer.core.transactions.queries import describe_transactions, producers, transactions

_UNKNOWN_TIME = -1
__all__ = [
    "QUERIES",
    "consumer_groups",
    "consumer_heartbeat",
    "describe_groups",
    "extent",
    "group_offsets",
    "group_wait",
    "groups",
    "heartbeat",
    "logs",
    "metadata",
    "next_deadline_ms",
    "offsets",
    "plan",
    "segment_extents",
    "segments",
    "validate",
    "watched_members",
]


def metadata(state: State, query: MetadataQuery) -> MetadataView:
    """The existing topics among those in the query, each once; all of them in pages, if the sender can page."""
    is_more = False
    if query.names is None:
        names, is_more = page_of(
            state.topics, query.after, state.limits.answers, lambda name: _view_bytes(state.topics[name])
        )
        found = {name: state.topics[name] for name in names}
    else:
        found = {name: state.topics[name] for name in query.names if name in state.topics}
    for topic_id in query.topic_ids:
        topic = state.topics_by_id.get(topic_id)
        if topic is not None:
            found[topic.name] = topic
    return MetadataView(state.sequence, [_topic_view(state, topic) for topic in found.values()], is_more=is_more)


def _view_bytes(topic: Topic) -> int:
    texts = text_bytes(topic.name) + sum(text_bytes(key) + text_bytes(value) for key, value in topic.configs.items())
    return texts + len(topic.topic_id) + 4 * NUMBER_BYTES


def _topic_view(state: State, topic: Topic) -> TopicView:
    return TopicView(topic.name, topic.topic_id, len(topic.partitions), topic.configs, state.leader_epoch)


def plan(state: State, query: PlanQuery) -> Plan:
    """The extents to read from each offset on, until their bytes fill the partition's budget or the whole budget.

    The extent that fills a budget is included, so a partition with any budget left gets at least one. The first
    partition with data gets an extent even without a budget, so that every plan makes progress. A plan has at most
    `plan_extents_max` extents.
    """
    plans = []
    limits = state.limits.answers
    bytes_left, extents_left, aborted_left = query.bytes_max, limits.plan_extents_max, limits.plan_aborted_max
    anything = False
    refs: dict[int, SegmentRef] = {}
    for wanted in query.partitions:
        partition = find_partition(state, wanted.topic_id, wanted.partition)
        if partition is None:
            plans.append(_no_plan(wanted))
            continue
        budget = min(wanted.bytes_max, bytes_left)
        extents, used = _extents_from(state, partition, wanted.offset, budget, extents_left, not anything, refs)
        anything = anything or bool(extents)
        bytes_left -= min(used, max(budget, 0))
        extents_left -= len(extents)
        planned = _partition_plan(partition, wanted.offset, extents, aborted_left)
        aborted_left -= len(planned.aborted)
        plans.append(planned)
    return Plan(state.sequence, plans)


def _no_plan(wanted: PlanPartition) -> PartitionPlan:
    return PartitionPlan(wanted.topic_id, wanted.partition, Rejection.UNKNOWN_TOPIC, -1, -1, -1, [])


def _partition_plan(partition: Partition, offset: int, extents: list[Extent], aborted_max: int) -> PartitionPlan:
    in_range = partition.log_start_offset <= offset <= partition.high_watermark
    first = partition.extents.find_offset(offset) if extents else 0
    aborted, end_offset = _aborted(partition, offset, extents, aborted_max)
    return PartitionPlan(
        partition.topic_id,
        partition.number,
        Rejection.NONE if in_range else Rejection.OFFSET_OUT_OF_RANGE,
        partition.log_start_offset,
        partition.high_watermark,
        last_stable_offset(partition),
        extents,
        markers_among(partition, first, first + len(extents)),
        aborted,
        end_offset,
    )


def _aborted(
    partition: Partition, offset: int, extents: list[Extent], count_max: int
) -> tuple[list[AbortedTransaction], int]:
    """Aborted transactions with records in the plan, and the offset below which they are all.

    The offset is -1 without extents, and for a partition that never had a transaction.
    """
    if partition.transactions is None or not extents:
        return [], -1
    return partition.transactions.aborted(offset, extents[-1].last_offset + 1, count_max)


def _extents_from(
    state: State,
    partition: Partition,
    offset: int,
    budget: int,
    count_max: int,
    at_least_one: bool,
    refs: dict[int, SegmentRef],
) -> tuple[list[Extent], int]:
    """Extents from the offset on, and an estimate of the bytes to read: the first one counts from the offset only."""
    found: list[Extent] = []
    used = 0
    if not partition.log_start_offset <= offset < partition.high_watermark:
        return found, used
    columns = partition.extents
    row = columns.find_offset(offset)
    while row < columns.end and len(found) < count_max and (used < budget or (at_least_one and not found)):
        base, last, length = columns.base_offsets[row], columns.last_offsets[row], columns.lengths[row] or MARKER_BYTES
        wanted = last - max(offset, base) + 1
        used += max(1, length * wanted // (last - base + 1))
        found.append(extent(state, partition, row, refs))
        row += 1
    return found, used


def extent(state: State, partition: Partition, row: int, refs: dict[int, SegmentRef]) -> Extent:
    """One row of a partition's extents as other services name it.

    `refs` keeps the segments that the answer has named already.
    """
    columns = partition.extents
    segment = columns.segments[row]
    ref = MARKER_REF if segment == MARKERS else refs.get(segment)
    if ref is None:
        ref = refs[segment] = state.segments.ref(segment)
    return Extent(
        columns.base_offsets[row],
        columns.last_offsets[row],
        ref,
        columns.positions[row],
        columns.lengths[row],
        _UNKNOWN_TIME if ref is MARKER_REF else columns.timestamps[row],
    )


def offsets(state: State, query: OffsetsQuery) -> OffsetsView:
    """Where each log reaches the given time; for MAX_TIMESTAMP the extent to search, and its last offset."""
    return OffsetsView(state.sequence, [_offset_of(state, wanted) for wanted in query.partitions])


def _offset_of(state: State, wanted: OffsetOf) -> OffsetFound:
    partition = find_partition(state, wanted.topic_id, wanted.partition)
    if partition is None:
        return OffsetFound(Rejection.UNKNOWN_TOPIC, -1, None, -1)
    epoch, start, stable = state.leader_epoch, partition.log_start_offset, last_stable_offset(partition)
    if wanted.timestamp == EARLIEST:
        return OffsetFound(Rejection.NONE, start, None, epoch, start, stable)
    if wanted.timestamp == LATEST:
        return OffsetFound(Rejection.NONE, partition.high_watermark, None, epoch, start, stable)
    columns = partition.extents
    first = columns.find_offset(max(wanted.from_offset, start))
    latest = wanted.timestamp == MAX_TIMESTAMP
    row = columns.find_latest(first) if latest else columns.find_timestamp(wanted.timestamp, first)
    if row == columns.end or is_marker(partition, row):
        return OffsetFound(Rejection.NONE, -1, None, epoch, start, stable)
    offset = columns.last_offsets[row] if latest else -1
    return OffsetFound(Rejection.NONE, offset, extent(state, partition, row, {}), epoch, start, stable)


def validate(state: State, query: ValidateQuery) -> ValidateView:
    """The outcome that each command would have if it were applied alone."""
    return ValidateView(state.sequence, [_validated(state, command) for command in query.commands])


def _validated(state: State, command: object) -> Outcome:
    if isinstance(command, CreateTopic):
        return check_create_topic(state, command)
    if isinstance(command, CreatePartitions):
        return check_create_partitions(state, command)
    if isinstance(command, AlterClientQuotas):
        return check_alter_client_quotas(state, command)
    if isinstance(command, AlterConfigs):
        return check_alter_configs(state, command)
    if isinstance(command, AlterGroupConfigs):
        return check_alter_group_configs(state, command)
    if isinstance(command, AlterClientMetrics):
        return check_alter_client_metrics(state, command)
    return Rejected(Rejection.INVALID_REQUEST, f"{type(command).__name__} cannot be validated")


QUERIES: dict[str, Callable[[State, Any], Any]] = {
    "metadata": metadata,
    "plan": plan,
    "offsets": offsets,
    "group_offsets": group_offsets,
    "groups": groups,
    "describe_groups": describe_groups,
    "heartbeat": heartbeat,
    "group_wait": group_wait,
    "consumer_heartbeat": consumer_heartbeat,
    "consumer_groups": consumer_groups,
    "share_heartbeat": share_heartbeat,
    "share_partitions": share_partitions,
    "share_groups": share_groups,
    "share_offsets": share_offsets,
    "dead_letter_groups": dead_letter_groups,
    "dead_letters": dead_letters,
    "group_configs": group_configs,
    "validate": validate,
    "segments": segments,
    "segment_extents": segment_extents,
    "logs": logs,
    "condemned": dead,
    "known_segments": known_segments,
    "usage": usage,
    "retention": retention,
    "deleted_topics": deleted_topics,
    "cluster_configs": cluster_configs,
    "describe_transactions": describe_transactions,
    "transactions": transactions,
    "producers": producers,
    "client_quotas": client_quotas,
    "security": security,
    "delegation_tokens": delegation_tokens,
    "log_sizes": log_sizes,
    "topic_survey": topic_survey,
    "group_survey": group_survey,
    "client_metrics": client_metrics,
    "streams_heartbeat": streams_heartbeat,
    "streams_groups": streams_groups,
}
