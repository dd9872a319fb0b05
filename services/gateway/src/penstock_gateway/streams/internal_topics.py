"""Creates the repartition and changelog topics that a streams group lacks, as Kafka's brokers do for their clients.

A heartbeat that finds such topics missing creates them. Heartbeats of other members may do the same at that time: a
topic that exists by then is no failure. A failure stands in the answer, and the next heartbeat tries again.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.contracts.commands import CreateTopic, InternalTopic
from penstock.contracts.configs.topics import validation_errors
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import ID_BYTES, new_topic_id
from penstock.kafkawire.api.streams_group_heartbeat import API
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasEntropy, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import AdminResult, level_validation_errors, result_of
from penstock_gateway.quotas.partition_mutation_quota import EXCEEDED, run_within_quota
from penstock_gateway.quotas.quota_cache import HasQuotas
from penstock_gateway.security.authorizer import HasAuthorizer

TIMEOUT_MS = 5_000  # the usual time between two heartbeats
FAILURES_SHOWN = 3


class Needs(HasAuthorizer, HasClock, HasEntropy, HasQuotas, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def create(gateway: Needs, client: Client, topics: Sequence[InternalTopic]) -> str:
    """Create the topics. Return what is to be added to the status of the group: "" if all exist now."""
    refused = _refused(gateway, client, topics)
    if refused:
        return f"; Unauthorized to CREATE on topics {', '.join(refused)}."
    results = {topic.name: _validation_error(gateway, topic) for topic in topics}
    commands = [_command(gateway, topic) for topic in topics if not results[topic.name][0]]
    partitions = [command.partitions for command in commands]
    outcomes = await run_within_quota(gateway, client, commands, partitions, TIMEOUT_MS, is_strict=True)
    gateway.topics.remove(command.name for command in commands)
    for command, outcome in zip(commands, outcomes, strict=True):
        results[command.name] = EXCEEDED if outcome is None else result_of(outcome)
    failed = [
        f"{name} ({message or error.name})"
        for name, (error, message) in results.items()
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    ]
    return f"; Creation failed: {', '.join(failed[:FAILURES_SHOWN])}." if failed else ""


def _refused(gateway: Needs, client: Client, topics: Sequence[InternalTopic]) -> list[str]:
    """The topics that the client may not create: it needs the right for the cluster or for the topic."""
    try:
        access = gateway.authorizer.access(client, API.key)
    except Unavailable:
        return [topic.name for topic in topics]
    if access is None or access.grants(AclOperation.CREATE, ResourceType.CLUSTER):
        return []
    return [topic.name for topic in topics if not access.allows(AclOperation.CREATE, ResourceType.TOPIC, topic.name)]


def _validation_error(gateway: Needs, topic: InternalTopic) -> AdminResult:
    configs = dict(topic.configs)
    reasons = validation_errors(configs) or level_validation_errors(gateway, configs)
    return (ErrorCode.INVALID_CONFIG, "; ".join(reasons)) if reasons else (ErrorCode.NONE, None)


def _command(gateway: Needs, topic: InternalTopic) -> CreateTopic:
    return CreateTopic(
        now_ms=gateway.clock.now_ms(),
        name=topic.name,
        topic_id=new_topic_id(gateway.entropy.take(ID_BYTES)),
        partitions=topic.partitions,
        configs=dict(topic.configs),
    )
