"""CreatePartitions: adds partitions to topics (KIP-195)."""

from typing import Protocol

from penstock.contracts.commands import CreatePartitions
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
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import AdminResult, duplicates, result_of, run_commands
from penstock_gateway.quotas.partition_mutation_quota import EXCEEDED, admits
from penstock_gateway.quotas.quota_cache import HasQuotas

FIRST_VERSION_MUTATIONS = 3  # with an error for partitions above the quota (KIP-599)


class Needs(HasClock, HasQuotas, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    repeated = duplicates(topic.name for topic in request.topics)
    results = {topic.name: _validation_error(topic, topic.name in repeated) for topic in request.topics}
    commands = [
        CreatePartitions(gateway.clock.now_ms(), topic.name, topic.count)
        for topic in request.topics
        if not results[topic.name][0] and not topic.assignments
    ]
    if not request.validate_only:
        is_strict = version >= FIRST_VERSION_MUTATIONS
        known = await _known_partitions(gateway, [each.name for each in commands])
        exceeding = [
            each
            for each in commands
            if not admits(gateway, client, each.count - known.get(each.name, 0), is_strict=is_strict)
        ]
        results |= {each.name: EXCEEDED for each in exceeding}
        commands = [each for each in commands if not results[each.name][0]]
    outcomes = await run_commands(gateway, commands, request.timeout_ms, validate_only=request.validate_only)
    if not request.validate_only:
        gateway.topics.remove(command.name for command in commands)
    results |= await _assigned(gateway, request, results)
    results |= {command.name: result_of(outcome) for command, outcome in zip(commands, outcomes, strict=True)}
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name, *result) for name, result in results.items()]
    )


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


async def _assigned(
    gateway: Needs, request: CreatePartitionsRequest, results: dict[str, AdminResult]
) -> dict[str, AdminResult]:
    """Reject assignments of replicas. As in Kafka, other errors of the topic come first."""
    commands = [
        CreatePartitions(gateway.clock.now_ms(), topic.name, topic.count)
        for topic in request.topics
        if not results[topic.name][0] and topic.assignments
    ]
    outcomes = await run_commands(gateway, commands, request.timeout_ms, validate_only=True)
    rejection = (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "every broker leads every partition, so replicas cannot be assigned: send no assignments",
    )
    found = {command.name: result_of(outcome) for command, outcome in zip(commands, outcomes, strict=True)}
    return {name: result if result[0] else rejection for name, result in found.items()}
