"""Alters configurations for the two APIs that do so: validates each resource, and runs the commands."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from penstock.contracts.commands import (
    AlterClientMetrics,
    AlterConfigs,
    AlterGroupConfigs,
    ConfigChange,
    ConfigOperation,
)
from penstock.contracts.configs.client_metrics import CLIENT_METRICS_CONFIGS, client_metrics_validation_errors
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS, group_validation_errors
from penstock.contracts.configs.topics import (
    TOPIC_CONFIGS,
    cluster_config,
    cluster_validation_errors,
    validation_errors,
)
from penstock.contracts.configs.values import TopicConfig
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.levels import BROKER_CONFIGS_LEVEL, CLIENT_METRICS_LEVEL, SHARE_GROUPS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE, error_of
from penstock_gateway.kafka.feature_levels import NO_CLIENT_METRICS, NO_GROUP_CONFIGS, until_level
from penstock_gateway.kafka.parts import HasClock, HasNodes, HasSequencer, HasSettings, HasTopics
from penstock_gateway.metadata.admin_commands import (
    MESSAGE_LENGTH_MAX,
    AdminResult,
    duplicates,
    result_of,
    run_commands,
    topic_name_validation_error,
)
from penstock_gateway.metadata.broker_configs import broker_validation_error, kept_changes
from penstock_gateway.metadata.config_view import BROKER, CLIENT_METRICS, GROUP, TOPIC, cluster_configs

TIMEOUT_MS = 30_000  # neither API has one of its own
# An attempt is rejected as STALE if this gateway has not seen a newer change. The rejection brings its sequence. Of
# concurrent changes one succeeds with each attempt, so this is the number of concurrent changes that all succeed.
ATTEMPTS_MAX = 100
STALE = error_of(Rejection.STALE)
VALUE_LENGTH_MAX = 1_000  # the longest useful value has some 30 characters
CLUSTER = ""  # as the name of a broker: the defaults of all brokers (KIP-226)
_OPERATIONS = frozenset(ConfigOperation)
_INTEGER = re.compile(r"-?[0-9]{1,10}")

# By type of resource: the lookup of its configurations, and the function that validates their values.
KNOWN_CONFIGS: dict[int, tuple[Callable[[str], TopicConfig | None], Callable[[dict[str, str]], list[str]]]] = {
    TOPIC: (TOPIC_CONFIGS.get, validation_errors),
    BROKER: (cluster_config, cluster_validation_errors),
    GROUP: (GROUP_RESOURCE_CONFIGS.get, group_validation_errors),
    CLIENT_METRICS: (CLIENT_METRICS_CONFIGS.get, client_metrics_validation_errors),
}

Resource = tuple[int, str]  # type and name


class Change(msgspec.Struct, frozen=True):
    """One configuration as the request has it: the operation may be unknown, the value null."""

    name: str
    operation: int
    value: str | None


class Alteration(msgspec.Struct, frozen=True):
    """The requested changes of one resource; with `replace` all other configurations return to their defaults."""

    resource: Resource
    changes: list[Change]
    replace: bool = False


class Needs(HasClock, HasNodes, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def alter(
    gateway: Needs, client: Client, asked: Sequence[Alteration], *, validate_only: bool
) -> dict[Resource, AdminResult]:
    """A result for each resource, in the order in which they were named first."""
    kinds = {kind for kind, _ in (each.resource for each in asked)}
    if GROUP in kinds:
        await until_level(gateway, SHARE_GROUPS_LEVEL)
    if CLIENT_METRICS in kinds:
        await until_level(gateway, CLIENT_METRICS_LEVEL)
    if any(_is_one_broker(each.resource) and each.changes for each in asked):
        await until_level(gateway, BROKER_CONFIGS_LEVEL)
    repeated = duplicates(each.resource for each in asked)
    own_id = gateway.nodes[client.listener].node_id
    results = {
        each.resource: _validation_error(gateway, each, each.resource in repeated, own_id)
        async for each in Slices().of(asked)
    }
    good = [each for each in asked if not results[each.resource][0]]
    for _ in range(ATTEMPTS_MAX):
        if not good:
            break
        results |= await _run(gateway, good, validate_only=validate_only)
        good = [each for each in good if results[each.resource][0] == STALE]
    return results


async def _run(gateway: Needs, asked: Sequence[Alteration], *, validate_only: bool) -> dict[Resource, AdminResult]:
    seen_sequence = gateway.sequencer.seen_sequence  # before the query, because its answer decides the changes
    replaces_one_broker = any(each.replace and _is_one_broker(each.resource) for each in asked)
    try:
        cluster = await cluster_configs(gateway) if replaces_one_broker else {}
    except Unavailable as error:
        return {each.resource: (ADMINISTRATION_UNAVAILABLE, str(error)) for each in asked}
    results: dict[Resource, AdminResult] = {each.resource: (ErrorCode.NONE, None) for each in asked}
    commands = {each.resource: _command(gateway, each, cluster, seen_sequence) async for each in Slices().of(asked)}
    needed = {resource: command for resource, command in commands.items() if command is not None}
    outcomes = await run_commands(gateway, list(needed.values()), TIMEOUT_MS, validate_only=validate_only)
    if not validate_only:
        gateway.topics.remove(command.topic for command in needed.values() if isinstance(command, AlterConfigs))
    return results | {resource: result_of(outcome) for resource, outcome in zip(needed, outcomes, strict=True)}


def _command(
    gateway: Needs, asked: Alteration, cluster: dict[str, str], seen_sequence: int
) -> AlterConfigs | AlterGroupConfigs | AlterClientMetrics | None:
    """The command for the changes of one resource; None if they change nothing."""
    kind, name = asked.resource
    now_ms, changes, replace = gateway.clock.now_ms(), _known_changes(asked), asked.replace
    if kind == GROUP:
        return AlterGroupConfigs(now_ms, name, changes, replace, seen_sequence)
    if kind == CLIENT_METRICS:
        return AlterClientMetrics(now_ms, name, changes, replace, seen_sequence)
    if not _is_one_broker(asked.resource):
        return AlterConfigs(now_ms, name if kind == TOPIC else "", changes, replace, seen_sequence)
    kept = kept_changes(int(name), _changes(asked), cluster if replace else None, gateway.sequencer.seen_level)
    return AlterConfigs(now_ms, "", kept, seen_sequence=seen_sequence) if kept else None


def _changes(asked: Alteration) -> list[ConfigChange]:
    return [ConfigChange(each.name, ConfigOperation(each.operation), each.value or "") for each in asked.changes]


def _known_changes(asked: Alteration) -> list[ConfigChange]:
    """The changes without removals of unknown names: as in Kafka these are accepted, and change nothing."""
    find, _ = KNOWN_CONFIGS[asked.resource[0]]
    return [each for each in _changes(asked) if each.operation != ConfigOperation.DELETE or find(each.name) is not None]


def _is_one_broker(resource: Resource) -> bool:
    kind, name = resource
    return kind == BROKER and name != CLUSTER


def _broker_error(gateway: Needs, asked: Alteration, own_id: int) -> AdminResult:
    """The error of changes of one broker, in the order of Kafka's checks."""
    _, name = asked.resource
    if not _INTEGER.fullmatch(name):
        return ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
    if int(name) != own_id:
        return ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own_id}, but received {name}"
    error, message = _form_validation_error(asked.changes)
    if error:
        return error, message
    return broker_validation_error(_changes(asked), gateway.sequencer.seen_level)


def _validation_error(gateway: Needs, asked: Alteration, is_repeated: bool, own_id: int) -> AdminResult:
    """The error of changes that need no sequencer to be rejected, so that they do not get into the journal."""
    kind, name = asked.resource
    if is_repeated:
        return ErrorCode.INVALID_REQUEST, "the resource occurs more than once in the request"
    if kind == GROUP:
        level = gateway.sequencer.seen_level
        if level is not None and level < SHARE_GROUPS_LEVEL:  # no sequencer journals it during an upgrade
            return ErrorCode.UNSUPPORTED_VERSION, NO_GROUP_CONFIGS
        if not name:
            return ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."
    elif kind == CLIENT_METRICS:
        level = gateway.sequencer.seen_level
        if level is not None and level < CLIENT_METRICS_LEVEL:
            return ErrorCode.UNSUPPORTED_VERSION, NO_CLIENT_METRICS
        if not name:
            return ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"
    elif kind == TOPIC and not name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    elif kind not in (TOPIC, BROKER):
        return ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}"
    if kind == TOPIC and not is_legal_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, topic_name_validation_error(name)
    if _is_one_broker(asked.resource):
        error, message = _broker_error(gateway, asked, own_id)
    else:
        error, message = _form_validation_error(asked.changes)
        if not error:
            error, message = _value_validation_error(kind, asked.changes)
    return error, message and message[:MESSAGE_LENGTH_MAX]


def _form_validation_error(changes: list[Change]) -> AdminResult:
    """Kafka's INVALID_REQUEST, for changes whose form is wrong for every configuration."""
    repeated = duplicates(change.name for change in changes)
    if repeated:
        return ErrorCode.INVALID_REQUEST, f"configurations occur more than once: {', '.join(sorted(repeated))}"
    for change in changes:
        if change.operation not in _OPERATIONS:
            return ErrorCode.INVALID_REQUEST, f"operation {change.operation} on {change.name} is none of 0 to 3"
        if change.value is None and change.operation != ConfigOperation.DELETE:
            return ErrorCode.INVALID_REQUEST, f"null is not a valid value: {change.name}"
    return ErrorCode.NONE, None


def _value_validation_error(kind: int, changes: list[Change]) -> AdminResult:
    """Kafka's INVALID_CONFIG, for unknown names, and for values that are wrong with any stored configurations."""
    find, validate = KNOWN_CONFIGS[kind]
    set_here = [change.name for change in changes if change.operation != ConfigOperation.DELETE]
    unknown = {name: "" for name in set_here if find(name) is None}
    values = {change.name: change.value or "" for change in changes if change.operation == ConfigOperation.SET}
    reasons = validate(unknown | values)
    reasons += [f"the value of {each.name} is too long" for each in changes if len(each.value or "") > VALUE_LENGTH_MAX]
    return (ErrorCode.INVALID_CONFIG, "; ".join(reasons)) if reasons else (ErrorCode.NONE, None)
