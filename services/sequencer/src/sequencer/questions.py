"""The queries by name: what each asks, which pure function answers, and how a failure looks in its answer's shape."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts import administration_queries as administration
from penstock.contracts import consumer_group_queries as consumers
from penstock.contracts import janitor_queries as janitors
from penstock.contracts import queries as shapes
from penstock.contracts import share_group_queries as shares
from penstock.contracts import transaction_queries as transactions
from penstock.contracts.commands import Waiting
from penstock.contracts.refusals import Refusal
from sequencer.core import (
    client_quotas,
    consumer_group_queries,
    janitor_queries,
    queries,
    retention_queries,
    share_offsets,
    share_queries,
    transaction_queries,
)
from sequencer.core.state import State


class Question(msgspec.Struct, frozen=True):
    """One kind of query; every query struct has `min_sequence`."""

    kind: type[Any]
    answer: Callable[[State, Any], msgspec.Struct] | None  # None: the replica answers, not its state
    fail: Callable[[int, str], msgspec.Struct]


QUESTIONS: dict[str, Question] = {
    "metadata": Question(
        shapes.MetadataQuery, queries.metadata, lambda sequence, text: shapes.MetadataView(sequence, [], text)
    ),
    "plan": Question(shapes.PlanQuery, queries.plan, lambda sequence, text: shapes.Plan(sequence, [], text)),
    "offsets": Question(
        shapes.OffsetsQuery, queries.offsets, lambda sequence, text: shapes.OffsetsView(sequence, [], text)
    ),
    "group_offsets": Question(
        shapes.GroupOffsetsQuery,
        queries.group_offsets,
        lambda sequence, text: shapes.GroupOffsetsView(sequence, [], text),
    ),
    "groups": Question(
        shapes.GroupsQuery, queries.groups, lambda sequence, text: shapes.GroupsView(sequence, [], text)
    ),
    "describe_groups": Question(
        shapes.DescribeGroupsQuery,
        queries.describe_groups,
        lambda sequence, text: shapes.DescribeGroupsView(sequence, [], text),
    ),
    "heartbeat": Question(
        shapes.HeartbeatQuery,
        queries.heartbeat,
        lambda sequence, text: shapes.HeartbeatView(sequence, Refusal.OUTCOME_UNKNOWN, text),
    ),
    "group_wait": Question(
        shapes.GroupWaitQuery,
        queries.group_wait,
        lambda sequence, text: shapes.GroupWaitView(sequence, Waiting("", -1), text),
    ),
    "consumer_heartbeat": Question(
        consumers.ConsumerHeartbeatQuery,
        consumer_group_queries.consumer_heartbeat,
        lambda sequence, text: consumers.ConsumerHeartbeatView(sequence, None, text),
    ),
    "consumer_groups": Question(
        consumers.ConsumerGroupsQuery,
        consumer_group_queries.consumer_groups,
        lambda sequence, text: consumers.ConsumerGroupsView(sequence, [], text),
    ),
    "validate": Question(
        shapes.ValidateQuery, queries.validate, lambda sequence, text: shapes.ValidateView(sequence, [], text)
    ),
    "segments": Question(
        shapes.SegmentsQuery,
        queries.segments,
        lambda sequence, text: shapes.SegmentsView(sequence, 0, [], -1, text),
    ),
    "segment_extents": Question(
        shapes.SegmentExtentsQuery,
        queries.segment_extents,
        lambda sequence, text: shapes.SegmentExtentsView(sequence, [], text),
    ),
    "logs": Question(shapes.LogsQuery, queries.logs, lambda sequence, text: shapes.LogsView(sequence, 0, [], text)),
    "condemned": Question(
        janitors.CondemnedQuery,
        janitor_queries.condemned,
        lambda sequence, text: janitors.CondemnedView(sequence, 0, 0, [], text),
    ),
    "known_segments": Question(
        janitors.KnownSegmentsQuery,
        janitor_queries.known_segments,
        lambda sequence, text: janitors.KnownSegmentsView(sequence, 0, 0, [], text),
    ),
    "usage": Question(
        janitors.UsageQuery,
        janitor_queries.usage,
        lambda sequence, text: janitors.UsageView(sequence, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, text),
    ),
    "retention": Question(
        janitors.RetentionQuery,
        retention_queries.retention,
        lambda sequence, text: janitors.RetentionView(sequence, 0, [], text),
    ),
    "deleted_topics": Question(
        janitors.DeletedTopicsQuery,
        retention_queries.deleted_topics,
        lambda sequence, text: janitors.DeletedTopicsView(sequence, 0, [], text),
    ),
    "cluster_configs": Question(
        janitors.ClusterConfigsQuery,
        retention_queries.cluster_configs,
        lambda sequence, text: janitors.ClusterConfigsView(sequence, {}, text),
    ),
    "describe_transactions": Question(
        transactions.DescribeTransactionsQuery,
        transaction_queries.describe_transactions,
        lambda sequence, text: transactions.DescribeTransactionsView(sequence, [], text),
    ),
    "transactions": Question(
        transactions.TransactionsQuery,
        transaction_queries.transactions,
        lambda sequence, text: transactions.TransactionsView(sequence, [], text),
    ),
    "producers": Question(
        transactions.ProducersQuery,
        transaction_queries.producers,
        lambda sequence, text: transactions.ProducersView(sequence, [], text),
    ),
    "client_quotas": Question(
        administration.ClientQuotasQuery,
        client_quotas.client_quotas,
        lambda sequence, text: administration.ClientQuotasView(sequence, 0, [], text),
    ),
    "log_sizes": Question(
        administration.LogSizesQuery,
        client_quotas.log_sizes,
        lambda sequence, text: administration.LogSizesView(sequence, [], text),
    ),
    "share_heartbeat": Question(
        shares.ShareHeartbeatQuery,
        share_queries.share_heartbeat,
        lambda sequence, text: shares.ShareHeartbeatView(sequence, None, text),
    ),
    "share_partitions": Question(
        shares.SharePartitionsQuery,
        share_queries.share_partitions,
        lambda sequence, text: shares.SharePartitionsView(sequence, [], failure=text),
    ),
    "share_groups": Question(
        shares.ShareGroupsQuery,
        share_queries.share_groups,
        lambda sequence, text: shares.ShareGroupsView(sequence, [], text),
    ),
    "share_offsets": Question(
        shares.ShareOffsetsQuery,
        share_offsets.share_offsets,
        lambda sequence, text: shares.ShareOffsetsView(sequence, [], failure=text),
    ),
    "group_configs": Question(
        shares.GroupConfigsQuery,
        share_queries.group_configs,
        lambda sequence, text: shares.GroupConfigsView(sequence, [], text),
    ),
    "journal": Question(
        janitors.JournalQuery, None, lambda sequence, text: janitors.JournalView(sequence, "", "", text)
    ),
}
