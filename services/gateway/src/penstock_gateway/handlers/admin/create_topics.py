"""CreateTopics: creates topics; each topic has its own result, error and message (KIP-464, KIP-525)."""

from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.commands import CreateTopic, Outcome, TopicCreated
from penstock.contracts.configs.replicas import REPLICAS, decoded_replicas, encoded_replicas
from penstock.contracts.configs.topics import validation_errors
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import ID_BYTES, is_internal_topic, is_legal_topic_name, new_topic_id
from penstock.contracts.levels import level_of_configs
from penstock.kafkawire.api.create_topics import (
    API as API,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.feature_levels import until_level
from penstock_gateway.kafka.parts import (
    HasClock,
    HasDirectory,
    HasEntropy,
    HasNodes,
    HasSequencer,
    HasSettings,
    HasTopics,
)
from penstock_gateway.metadata.admin_commands import (
    MESSAGE_LENGTH_MAX,
    AdminResult,
    duplicates,
    level_validation_errors,
    result_of,
    run_commands,
    topic_name_validation_error,
)
from penstock_gateway.metadata.cluster_view import cluster_of
from penstock_gateway.metadata.config_view import Setting, cluster_configs, settings_of
from penstock_gateway.metadata.replica_assignment import assignment_error
from penstock_gateway.quotas.partition_mutation_quota import EXCEEDED, run_within_quota
from penstock_gateway.quotas.quota_cache import HasQuotas

DEFAULT = -1
FIRST_VERSION_CONFIGS = 5
FIRST_VERSION_MUTATIONS = 6  # with an error for topics above the quota (KIP-599)
RESULT_STEPS = 16  # of a slice: a result has all configurations of its topic
CONFIGS_DEADLINE_S = 1.0  # short: the topics exist already, and the configurations are only information
REPLICATION_FACTOR = 1  # without assignments only the leader is reported: the object store keeps the copies


class Needs(HasClock, HasDirectory, HasEntropy, HasNodes, HasQuotas, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
    slices = Slices()
    repeated = duplicates(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    levels = [level_of_configs(_stored_configs(topic)) async for topic in slices.of(request.topics)]
    await until_level(gateway, max(levels, default=0))
    is_assigned = any(topic.assignments for topic in request.topics)
    brokers = {node.node_id for node in cluster_of(gateway, client).brokers} if is_assigned else set()
    results = {
        name: _rejection(gateway, brokers, topic, name in repeated) async for name, topic in slices.of(topics.items())
    }
    doubtful = [name for name, rejected in results.items() if rejected is not None and name not in repeated]
    results |= await _existing(gateway, doubtful)
    good = [name for name, rejected in results.items() if rejected is None]
    commands = [_command(gateway, topics[name]) async for name in slices.of(good)]
    outcomes: Sequence[Outcome | None]
    if request.validate_only:
        outcomes = await run_commands(gateway, commands, request.timeout_ms, validate_only=True)
    else:
        partitions = [each.partitions for each in commands]
        is_strict = version >= FIRST_VERSION_MUTATIONS
        outcomes = await run_within_quota(
            gateway, client, commands, partitions, request.timeout_ms, is_strict=is_strict
        )
        gateway.topics.remove(command.name for command in commands)
    cluster = await _cluster_configs(gateway, version, outcomes)
    async for command, outcome in slices.of(zip(commands, outcomes, strict=True), RESULT_STEPS):
        results[command.name] = _result(command, outcome, cluster)
    return CreateTopicsResponse(topics=[result for result in results.values() if result is not None])


def _rejection(
    gateway: Needs, brokers: set[int], topic: CreatableTopic, is_repeated: bool
) -> CreatableTopicResult | None:
    """The error that the gateway finds without a sequencer, so that the topic stays out of the journal."""
    error, message = _validation_error(gateway, brokers, topic, is_repeated)
    if not error:
        return None
    return CreatableTopicResult(
        name=topic.name, error_code=error, error_message=message and message[:MESSAGE_LENGTH_MAX]
    )


async def _existing(gateway: Needs, names: list[str]) -> dict[str, CreatableTopicResult]:
    """Errors for topics that exist. Kafka checks this first, and many clients create their topics at each start."""
    try:
        found = await gateway.topics.find(name for name in names if is_legal_topic_name(name))
    except Unavailable:
        return {}
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    return {
        name: CreatableTopicResult(name=name, error_code=exists, error_message=f"Topic '{name}' already exists.")
        for name in found
    }


def _validation_error(gateway: Needs, brokers: set[int], topic: CreatableTopic, is_repeated: bool) -> AdminResult:
    if is_repeated:
        return ErrorCode.INVALID_REQUEST, "Duplicate topic name."
    if not is_legal_topic_name(topic.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, topic_name_validation_error(topic.name)
    if is_internal_topic(topic.name):
        return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited."
    error, message = _config_validation_error(gateway, topic)
    if error:
        return error, message
    return _placement_validation_error(brokers, topic)


def _placement_validation_error(brokers: set[int], topic: CreatableTopic) -> AdminResult:
    if topic.assignments and topic.replication_factor != DEFAULT:
        return ErrorCode.INVALID_REQUEST, "the replication factor must be -1 in a request with replica assignments"
    if topic.assignments and topic.num_partitions != DEFAULT:
        return ErrorCode.INVALID_REQUEST, "the number of partitions must be -1 in a request with replica assignments"
    if topic.assignments:
        return _assignment_error(brokers, topic)
    if topic.replication_factor < 1 and topic.replication_factor != DEFAULT:
        return ErrorCode.INVALID_REPLICATION_FACTOR, (
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if topic.num_partitions < 1 and topic.num_partitions != DEFAULT:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    return ErrorCode.NONE, None


def _assignment_error(brokers: set[int], topic: CreatableTopic) -> AdminResult:
    by_partition = sorted(topic.assignments, key=lambda each: each.partition_index)
    if [each.partition_index for each in by_partition] != list(range(len(by_partition))):
        reason = "partitions should be a consecutive 0-based integer sequence"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason
    return assignment_error([each.broker_ids for each in by_partition], brokers)


def _config_validation_error(gateway: Needs, topic: CreatableTopic) -> AdminResult:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        return ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(nulls)}"
    reasons = validation_errors(_configs(topic)) or level_validation_errors(gateway, _stored_configs(topic))
    if reasons:
        return ErrorCode.INVALID_CONFIG, "; ".join(reasons)
    return ErrorCode.NONE, None


def _configs(topic: CreatableTopic) -> dict[str, str]:
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _command(gateway: Needs, topic: CreatableTopic) -> CreateTopic:
    partitions = len(topic.assignments) or topic.num_partitions
    return CreateTopic(
        now_ms=gateway.clock.now_ms(),
        name=topic.name,
        topic_id=new_topic_id(gateway.entropy.take(ID_BYTES)),
        partitions=gateway.settings.default_partitions if partitions == DEFAULT else partitions,
        configs=_stored_configs(topic),
    )


def _stored_configs(topic: CreatableTopic) -> dict[str, str]:
    """The configurations of the request, and the assigned replicas."""
    if not topic.assignments:
        return _configs(topic)
    by_partition = sorted(topic.assignments, key=lambda each: each.partition_index)
    return _configs(topic) | {REPLICAS: encoded_replicas([each.broker_ids for each in by_partition])}


async def _cluster_configs(gateway: Needs, version: int, outcomes: Sequence[Outcome | None]) -> dict[str, str] | None:
    """The cluster's default configurations; None if the answer does not need them, or no sequencer answers."""
    if version < FIRST_VERSION_CONFIGS or not any(isinstance(outcome, TopicCreated) for outcome in outcomes):
        return None
    try:
        return await cluster_configs(gateway, CONFIGS_DEADLINE_S)
    except Unavailable:
        return None


def _result(command: CreateTopic, outcome: Outcome | None, cluster: dict[str, str] | None) -> CreatableTopicResult:
    if not isinstance(outcome, TopicCreated):
        error, message = EXCEEDED if outcome is None else result_of(outcome)
        return CreatableTopicResult(name=command.name, error_code=error, error_message=message)
    settings: list[Setting] = [] if cluster is None else settings_of(outcome.configs, cluster)
    return CreatableTopicResult(
        name=command.name,
        topic_id=outcome.topic_id,
        error_message=None,
        topic_config_error_code=ADMINISTRATION_UNAVAILABLE if cluster is None else ErrorCode.NONE,
        num_partitions=outcome.partitions,
        replication_factor=len(decoded_replicas(outcome.configs.get(REPLICAS, ""))[0]) or REPLICATION_FACTOR,
        configs=[
            CreatableTopicConfigs(setting.name, setting.value, config_source=setting.source) for setting in settings
        ],
    )
