"""AlterPartitionReassignments: keeps the replicas as asked, at once; no data moves (KIP-455)."""

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.levels import REPLICAS_LEVEL
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api.alter_partition_reassignments import (
    API as API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.feature_levels import until_level
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import AdminResult
from penstock_gateway.metadata.assigned_replicas import assign, placements
from penstock_gateway.metadata.cluster_view import ClusterView, cluster_of
from penstock_gateway.metadata.replica_assignment import assignment_error

TOPIC_STEPS = 16  # of a loop, for one topic with its assignments


class Needs(HasClock, HasDirectory, HasNodes, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    cluster = cluster_of(gateway, client)
    await until_level(gateway, REPLICAS_LEVEL)
    names = [topic.name for topic in request.topics if is_legal_topic_name(topic.name)]
    try:
        views = await gateway.topics.find(names)
    except Unavailable as error:
        return AlterPartitionReassignmentsResponse(error_code=ADMINISTRATION_UNAVAILABLE, error_message=str(error))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            await _reassigned(gateway, cluster, topic, views.get(topic.name), request)
            async for topic in Slices().of(request.topics, TOPIC_STEPS)
        ],
    )


async def _reassigned(
    gateway: Needs,
    cluster: ClusterView,
    asked: ReassignableTopic,
    view: TopicView | None,
    request: AlterPartitionReassignmentsRequest,
) -> ReassignableTopicResponse:
    """Keep the valid reassignments of a topic, all in one change, and answer each."""
    brokers = {node.node_id for node in cluster.brokers}
    factors = None if view is None else _factors(view, asked, cluster)
    may_change = request.allow_replication_factor_change
    errors = [_error(asked.name, each, factors, brokers, may_change) for each in asked.partitions]
    results = [
        ReassignablePartitionResponse(each.partition_index, error, message)
        for each, (error, message) in zip(asked.partitions, errors, strict=True)
    ]
    replicas = {
        each.partition_index: each.replicas
        for each, result in zip(asked.partitions, results, strict=True)
        if not result.error_code and each.replicas is not None
    }
    if replicas:
        error, message = await assign(gateway, asked.name, replicas, request.timeout_ms)
        if error:
            results = [
                each if each.error_code else msgspec.structs.replace(each, error_code=error, error_message=message)
                for each in results
            ]
    return ReassignableTopicResponse(asked.name, results)


def _factors(view: TopicView, asked: ReassignableTopic, cluster: ClusterView) -> dict[int, int]:
    """The present number of replicas of the named partitions that exist."""
    existing = (each.partition_index for each in asked.partitions if 0 <= each.partition_index < view.partitions)
    return {each.partition: len(each.replicas) for each in placements(view, existing, cluster)}


def _error(
    name: str,
    asked: ReassignablePartition,
    factors: Mapping[int, int] | None,
    brokers: Collection[int],
    may_change: bool,
) -> AdminResult:
    """Kafka's first error of a reassignment, in its words; `factors` are those of the present, None without a topic."""
    if factors is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    if asked.partition_index not in factors:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}."
    if asked.replicas is None:  # a reassignment is over when it is answered
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    error, message = assignment_error([asked.replicas], brokers)
    before, after = factors[asked.partition_index], len(asked.replicas)
    if error or may_change or before == after:
        return error, message
    return ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {before} to {after}"
