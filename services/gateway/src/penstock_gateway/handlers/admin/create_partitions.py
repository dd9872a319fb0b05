"""CreatePartitions: adds partitions to topics (KIP-195)."""

from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.commands import CreatePartitions, Outcome
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.kafkawire.api.create_partitions import (
    API as API,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import AdminResult, duplicates, result_of, run_commands
from penstock_gateway.metadata.assigned_replicas import assign
from penstock_gateway.metadata.cluster_view import cluster_of
from penstock_gateway.metadata.replica_assignment import assignment_error
from penstock_gateway.quotas.partition_mutation_quota import EXCEEDED, run_within_quota
from penstock_gateway.quotas.quota_cache import HasQuotas

FIRST_VERSION_MUTATIONS = 3  # with an error for partitions above the quota (KIP-599)


class Needs(HasClock, HasDirectory, HasNodes, HasQuotas, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    slices = Slices()
    repeated = duplicates(topic.name for topic in request.topics)
    results = {
        topic.name: _validation_error(topic, topic.name in repeated) async for topic in slices.of(request.topics)
    }
    results |= await _assignment_errors(gateway, client, request, results, slices)
    commands = [
        CreatePartitions(gateway.clock.now_ms(), topic.name, topic.count)
        async for topic in slices.of(request.topics)
        if not results[topic.name][0]
    ]
    outcomes: Sequence[Outcome | None]
    if request.validate_only:
        outcomes = await run_commands(gateway, commands, request.timeout_ms, validate_only=True)
    else:
        known = await _known_partitions(gateway, [each.name for each in commands])
        added = [each.count - known.get(each.name, 0) for each in commands]
        is_strict = version >= FIRST_VERSION_MUTATIONS
        outcomes = await run_within_quota(gateway, client, commands, added, request.timeout_ms, is_strict=is_strict)
        gateway.topics.remove(command.name for command in commands)
    async for command, outcome in slices.of(zip(commands, outcomes, strict=True)):
        results[command.name] = EXCEEDED if outcome is None else result_of(outcome)
    if not request.validate_only:
        for topic in request.topics:
            if topic.assignments and not results[topic.name][0]:
                results[topic.name] = await _assign(gateway, topic, request.timeout_ms)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name, *result) async for name, result in slices.of(results.items())]
    )


async def _assign(gateway: Needs, topic: CreatePartitionsTopic, timeout_ms: int) -> AdminResult:
    """Keep the replicas of the new partitions; these exist already, so that a crash before it loses only that."""
    assert topic.assignments is not None, f"{topic.name} has no assignments"
    first = topic.count - len(topic.assignments)
    replicas = {first + place: each.broker_ids for place, each in enumerate(topic.assignments)}
    return await assign(gateway, topic.name, replicas, timeout_ms)


async def _known_partitions(gateway: Needs, names: list[str]) -> dict[str, int]:
    """The present number of partitions of each topic, as far as it is known. Needed only for quotas."""
    if gateway.quotas.is_empty:
        return {}
    try:
        return {name: view.partitions for name, view in (await gateway.topics.find(names)).items()}
    except Unavailable:
        return {}


def _validation_error(topic: CreatePartitionsTopic, is_repeated: bool) -> AdminResult:
    if is_repeated:
        return ErrorCode.INVALID_REQUEST, "the topic occurs more than once in the request"
    if not is_legal_topic_name(topic.name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    return ErrorCode.NONE, None


async def _assignment_errors(
    gateway: Needs, client: Client, request: CreatePartitionsRequest, results: dict[str, AdminResult], slices: Slices
) -> dict[str, AdminResult]:
    """Errors in assignments of replicas. As in Kafka, other errors of the topic come first."""
    commands = [
        CreatePartitions(gateway.clock.now_ms(), topic.name, topic.count)
        async for topic in slices.of(request.topics)
        if not results[topic.name][0] and topic.assignments is not None
    ]
    outcomes = await run_commands(gateway, commands, request.timeout_ms, validate_only=True)
    found = {command.name: result_of(outcome) for command, outcome in zip(commands, outcomes, strict=True)}
    growing = [name for name, result in found.items() if not result[0]]
    gateway.topics.remove(growing)  # another gateway may have added partitions
    try:
        views = await gateway.topics.find(growing)
    except Unavailable as error:
        return found | {name: (ADMINISTRATION_UNAVAILABLE, str(error)) for name in growing}
    brokers = {node.node_id for node in cluster_of(gateway, client).brokers}
    async for topic in slices.of(request.topics):
        if topic.name in views and topic.assignments is not None:
            added = topic.count - views[topic.name].partitions
            found[topic.name] = _assignment_error([each.broker_ids for each in topic.assignments], added, brokers)
    return found


def _assignment_error(replicas: list[list[int]], added: int, brokers: set[int]) -> AdminResult:
    if len(replicas) != added:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, (
            f"Attempted to add {added} additional partition(s), but only {len(replicas)} assignment(s) were specified."
        )
    return assignment_error(replicas, brokers)
