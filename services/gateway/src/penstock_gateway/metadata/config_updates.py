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
    CLUSTER_CONFIGS,
    TOPIC_CONFIGS,
    cluster_validation_errors,
    validation_errors,
)
from penstock.contracts.configs.values import TopicConfig
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.levels import CLIENT_METRICS_LEVEL, SHARE_GROUPS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
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
from penstock_gateway.metadata.config_view import BROKER, CLIENT_METRICS, GROUP, TOPIC

TIMEOUT_MS = 30_000  # neither API has one of its own
# An attempt is rejected as STALE if this gateway has not seen a newer change. The rejection brings its sequence. Of
# concurrent changes one succeeds with each attempt, so this is the number of concurrent changes that all succeed.
ATTEMPTS_MAX = 100
STALE = error_of(Rejection.STALE)
VALUE_LENGTH_MAX = 1_000  # the longest useful value has some 30 characters
CLUSTER = ""  # as the name of a broker: the defaults of all brokers (KIP-226)
_INTEGER = re.compile(r"-?[0-9]{1,10}")

# By type of resource: its configurations, and the function that validates their values.
KNOWN_CONFIGS: dict[int, tuple[dict[str, TopicConfig], Callable[[dict[str, str]], list[str]]]] = {
    TOPIC: (TOPIC_CONFIGS, validation_errors),
    BROKER: (CLUSTER_CONFIGS, cluster_validation_errors),
    GROUP: (GROUP_RESOURCE_CONFIGS, group_validation_errors),
    CLIENT_METRICS: (CLIENT_METRICS_CONFIGS, client_metrics_validation_errors),
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
    repeated = duplicates(each.resource for each in asked)
    own_id = gateway.nodes[client.listener].node_id
    results = {each.resource: _validation_error(gateway, each, each.resource in repeated, own_id) for each in asked}
    good = [each for each in asked if not results[each.resource][0] and not _is_one_broker(each.resource)]
    for _ in range(ATTEMPTS_MAX):
        if not good:
            break
        results |= await _run(gateway, good, validate_only=validate_only)
        good = [each for each in good if results[each.resource][0] == STALE]
    return results


async def _run(gateway: Needs, asked: Sequence[Alteration], *, validate_only: bool) -> dict[Resource, AdminResult]:
    commands = [_command(gateway, each) for each in asked]
    outcomes = await run_commands(gateway, commands, TIMEOUT_MS, validate_only=validate_only)
    if not validate_only:
        gateway.topics.remove(command.topic for command in commands if isinstance(command, AlterConfigs))
    return {each.resource: result_of(outcome) for each, outcome in zip(asked, outcomes, strict=True)}


def _command(gateway: Needs, asked: Alteration) -> AlterConfigs | AlterGroupConfigs | AlterClientMetrics:
    kind, name = asked.resource
    changes = [ConfigChange(each.name, ConfigOperation(each.operation), each.value or "") for each in asked.changes]
    if kind == GROUP:
        return AlterGroupConfigs(
            now_ms=gateway.clock.now_ms(),
            group_id=name,
            changes=changes,
            replace=asked.replace,
            seen_sequence=gateway.sequencer.seen_sequence,
        )
    if kind == CLIENT_METRICS:
        return AlterClientMetrics(
            now_ms=gateway.clock.now_ms(),
            name=name,
            changes=changes,
            replace=asked.replace,
            seen_sequence=gateway.sequencer.seen_sequence,
        )
    return AlterConfigs(
        now_ms=gateway.clock.now_ms(),
        topic=name if kind == TOPIC else "",
        changes=changes,
        replace=asked.replace,
        seen_sequence=gateway.sequencer.seen_sequence,
    )


def _is_one_broker(resource: Resource) -> bool:
    kind, name = resource
    return kind == BROKER and name != CLUSTER


def _broker_error(name: str, changes: list[Change], own_id: int) -> AdminResult:
    """Why a broker cannot have these configurations. It has none, so their removal is always accepted."""
    if not _INTEGER.fullmatch(name):
        return ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
    if int(name) != own_id:
        return ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own_id}, but received {name}"
    error, message = _form_validation_error(changes)
    if error or all(change.operation == ConfigOperation.DELETE for change in changes):
        return error, message
    return ErrorCode.INVALID_REQUEST, (
        "a single broker has no configurations of its own: set those of all brokers, with an empty name"
    )


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
    elif kind not in (TOPIC, BROKER):
        return ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}"
    if kind == TOPIC and not is_legal_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, topic_name_validation_error(name)
    is_one_broker = _is_one_broker(asked.resource)
    error, message = (
        _broker_error(name, asked.changes, own_id) if is_one_broker else _form_validation_error(asked.changes)
    )
    if not error and not is_one_broker:
        error, message = _value_validation_error(kind, asked.changes)
    return error, message and message[:MESSAGE_LENGTH_MAX]


def _form_validation_error(changes: list[Change]) -> AdminResult:
    """Kafka's INVALID_REQUEST, for changes whose form is wrong for every configuration."""
    repeated = duplicates(change.name for change in changes)
    if repeated:
        return ErrorCode.INVALID_REQUEST, f"configurations occur more than once: {', '.join(sorted(repeated))}"
    for change in changes:
        if change.operation not in tuple(ConfigOperation):
            return ErrorCode.INVALID_REQUEST, f"operation {change.operation} on {change.name} is none of 0 to 3"
        if change.value is None and change.operation != ConfigOperation.DELETE:
            return ErrorCode.INVALID_REQUEST, f"null is not a valid value: {change.name}"
    return ErrorCode.NONE, None


def _value_validation_error(kind: int, changes: list[Change]) -> AdminResult:
    """Kafka's INVALID_CONFIG, for unknown names, and for values that are wrong with any stored configurations."""
    known, validate = KNOWN_CONFIGS[kind]
    unknown = {change.name: "" for change in changes if change.name not in known}
    values = {change.name: change.value or "" for change in changes if change.operation == ConfigOperation.SET}
    reasons = validate(unknown | values)
    reasons += [f"the value of {each.name} is too long" for each in changes if len(each.value or "") > VALUE_LENGTH_MAX]
    return (ErrorCode.INVALID_CONFIG, "; ".join(reasons)) if reasons else (ErrorCode.NONE, None)
