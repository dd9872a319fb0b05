"""The queries by name: the message of each, the pure function that answers it, and the answer to a failed query."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts.commands import Waiting
from penstock.contracts.queries import (
    client_metrics as ask_client_metrics,
    compaction as ask_compaction,
    consumer_groups,
    delegation_tokens as ask_tokens,
    groups as ask_groups,
    janitor as ask_janitor,
    log as ask_log,
    quotas as ask_quotas,
    security as ask_security,
    share as ask_share,
    streams_groups as ask_streams,
    survey as ask_survey,
    topics as ask_topics,
    transactions as ask_transactions,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups import consumer_queries
from penstock_sequencer.core.groups.streams import queries as streams_queries
from penstock_sequencer.core.log import retention_queries
from penstock_sequencer.core.maintenance import queries as janitor_queries, surveys
from penstock_sequencer.core.security import queries as security_queries, tokens
from penstock_sequencer.core.share import dead_letters, offsets as share_offsets, queries as share_queries
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.topics import client_metrics, client_quotas
from penstock_sequencer.core.transactions import queries as transaction_queries


class QueryHandler(msgspec.Struct, frozen=True):
    """The message of one kind of query and its answers; every query struct has `min_sequence`."""

    kind: type[Any]
    answer: Callable[[State, Any], msgspec.Struct] | None  # None: the replica answers, not its state
    fail: Callable[[int, str], msgspec.Struct]


QUERY_HANDLERS: dict[str, QueryHandler] = {
    "metadata": QueryHandler(
        ask_topics.MetadataQuery, queries.metadata, lambda sequence, text: ask_topics.MetadataView(sequence, [], text)
    ),
    "plan": QueryHandler(ask_log.PlanQuery, queries.plan, lambda sequence, text: ask_log.Plan(sequence, [], text)),
    "offsets": QueryHandler(
        ask_log.OffsetsQuery, queries.offsets, lambda sequence, text: ask_log.OffsetsView(sequence, [], text)
    ),
    "group_offsets": QueryHandler(
        ask_groups.GroupOffsetsQuery,
        queries.group_offsets,
        lambda sequence, text: ask_groups.GroupOffsetsView(sequence, [], text),
    ),
    "groups": QueryHandler(
        ask_groups.GroupsQuery, queries.groups, lambda sequence, text: ask_groups.GroupsView(sequence, [], text)
    ),
    "describe_groups": QueryHandler(
        ask_groups.DescribeGroupsQuery,
        queries.describe_groups,
        lambda sequence, text: ask_groups.DescribeGroupsView(sequence, [], text),
    ),
    "heartbeat": QueryHandler(
        ask_groups.HeartbeatQuery,
        queries.heartbeat,
        lambda sequence, text: ask_groups.HeartbeatView(sequence, Rejection.OUTCOME_UNKNOWN, text),
    ),
    "group_wait": QueryHandler(
        ask_groups.GroupWaitQuery,
        queries.group_wait,
        lambda sequence, text: ask_groups.GroupWaitView(sequence, Waiting("", -1), text),
    ),
    "consumer_heartbeat": QueryHandler(
        consumer_groups.ConsumerHeartbeatQuery,
        consumer_queries.consumer_heartbeat,
        lambda sequence, text: consumer_groups.ConsumerHeartbeatView(sequence, None, text),
    ),
    "consumer_groups": QueryHandler(
        consumer_groups.ConsumerGroupsQuery,
        consumer_queries.consumer_groups,
        lambda sequence, text: consumer_groups.ConsumerGroupsView(sequence, [], text),
    ),
    "validate": QueryHandler(
        ask_topics.ValidateQuery, queries.validate, lambda sequence, text: ask_topics.ValidateView(sequence, [], text)
    ),
    "segments": QueryHandler(
        ask_compaction.SegmentsQuery,
        queries.segments,
        lambda sequence, text: ask_compaction.SegmentsView(sequence, 0, [], -1, text),
    ),
    "segment_extents": QueryHandler(
        ask_compaction.SegmentExtentsQuery,
        queries.segment_extents,
        lambda sequence, text: ask_compaction.SegmentExtentsView(sequence, [], text),
    ),
    "logs": QueryHandler(
        ask_compaction.LogsQuery, queries.logs, lambda sequence, text: ask_compaction.LogsView(sequence, 0, [], text)
    ),
    "condemned": QueryHandler(
        ask_janitor.DeadSegmentsQuery,
        janitor_queries.dead,
        lambda sequence, text: ask_janitor.DeadSegmentsView(sequence, 0, 0, [], text),
    ),
    "known_segments": QueryHandler(
        ask_janitor.KnownSegmentsQuery,
        janitor_queries.known_segments,
        lambda sequence, text: ask_janitor.KnownSegmentsView(sequence, 0, 0, [], text),
    ),
    "usage": QueryHandler(
        ask_janitor.UsageQuery,
        janitor_queries.usage,
        lambda sequence, text: ask_janitor.UsageView(sequence, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, text),
    ),
    "retention": QueryHandler(
        ask_janitor.RetentionQuery,
        retention_queries.retention,
        lambda sequence, text: ask_janitor.RetentionView(sequence, 0, [], text),
    ),
    "deleted_topics": QueryHandler(
        ask_topics.DeletedTopicsQuery,
        retention_queries.deleted_topics,
        lambda sequence, text: ask_topics.DeletedTopicsView(sequence, 0, [], text),
    ),
    "cluster_configs": QueryHandler(
        ask_topics.ClusterConfigsQuery,
        retention_queries.cluster_configs,
        lambda sequence, text: ask_topics.ClusterConfigsView(sequence, {}, text),
    ),
    "describe_transactions": QueryHandler(
        ask_transactions.DescribeTransactionsQuery,
        transaction_queries.describe_transactions,
        lambda sequence, text: ask_transactions.DescribeTransactionsView(sequence, [], text),
    ),
    "transactions": QueryHandler(
        ask_transactions.TransactionsQuery,
        transaction_queries.transactions,
        lambda sequence, text: ask_transactions.TransactionsView(sequence, [], text),
    ),
    "producers": QueryHandler(
        ask_transactions.ProducersQuery,
        transaction_queries.producers,
        lambda sequence, text: ask_transactions.ProducersView(sequence, [], text),
    ),
    "client_quotas": QueryHandler(
        ask_quotas.ClientQuotasQuery,
        client_quotas.client_quotas,
        lambda sequence, text: ask_quotas.ClientQuotasView(sequence, 0, [], text),
    ),
    "security": QueryHandler(
        ask_security.SecurityQuery,
        security_queries.security,
        lambda sequence, text: ask_security.SecurityView(sequence, 0, [], [], failure=text),
    ),
    "delegation_tokens": QueryHandler(
        ask_tokens.TokensQuery,
        tokens.delegation_tokens,
        lambda sequence, text: ask_tokens.TokensView(sequence, 0, [], failure=text),
    ),
    "client_metrics": QueryHandler(
        ask_client_metrics.ClientMetricsQuery,
        client_metrics.client_metrics,
        lambda sequence, text: ask_client_metrics.ClientMetricsView(sequence, 0, {}, text),
    ),
    "log_sizes": QueryHandler(
        ask_log.LogSizesQuery,
        client_quotas.log_sizes,
        lambda sequence, text: ask_log.LogSizesView(sequence, [], text),
    ),
    "share_heartbeat": QueryHandler(
        ask_share.ShareHeartbeatQuery,
        share_queries.share_heartbeat,
        lambda sequence, text: ask_share.ShareHeartbeatView(sequence, None, text),
    ),
    "share_partitions": QueryHandler(
        ask_share.SharePartitionsQuery,
        share_queries.share_partitions,
        lambda sequence, text: ask_share.SharePartitionsView(sequence, [], failure=text),
    ),
    "share_groups": QueryHandler(
        ask_share.ShareGroupsQuery,
        share_queries.share_groups,
        lambda sequence, text: ask_share.ShareGroupsView(sequence, [], text),
    ),
    "share_offsets": QueryHandler(
        ask_share.ShareOffsetsQuery,
        share_offsets.share_offsets,
        lambda sequence, text: ask_share.ShareOffsetsView(sequence, [], failure=text),
    ),
    "dead_letter_groups": QueryHandler(
        ask_share.DeadLetterGroupsQuery,
        dead_letters.dead_letter_groups,
        lambda sequence, text: ask_share.DeadLetterGroupsView(sequence, [], failure=text),
    ),
    "dead_letters": QueryHandler(
        ask_share.DeadLettersQuery,
        dead_letters.dead_letters,
        lambda sequence, text: ask_share.DeadLettersView(sequence, [], failure=text),
    ),
    "group_configs": QueryHandler(
        ask_groups.GroupConfigsQuery,
        share_queries.group_configs,
        lambda sequence, text: ask_groups.GroupConfigsView(sequence, [], text),
    ),
    "streams_heartbeat": QueryHandler(
        ask_streams.StreamsHeartbeatQuery,
        streams_queries.streams_heartbeat,
        lambda sequence, text: ask_streams.StreamsHeartbeatView(sequence, None, text),
    ),
    "streams_groups": QueryHandler(
        ask_streams.StreamsGroupsQuery,
        streams_queries.streams_groups,
        lambda sequence, text: ask_streams.StreamsGroupsView(sequence, [], text),
    ),
    "topic_survey": QueryHandler(
        ask_survey.TopicSurveyQuery,
        surveys.topic_survey,
        lambda sequence, text: ask_survey.TopicSurveyView(sequence, 0, [], text),
    ),
    "group_survey": QueryHandler(
        ask_survey.GroupSurveyQuery,
        surveys.group_survey,
        lambda sequence, text: ask_survey.GroupSurveyView(sequence, 0, [], text),
    ),
    "journal": QueryHandler(
        ask_janitor.JournalQuery, None, lambda sequence, text: ask_janitor.JournalView(sequence, "", "", text)
    ),
}
