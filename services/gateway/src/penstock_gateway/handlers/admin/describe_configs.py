"""DescribeConfigs: lists configurations of topics, share groups, metrics subscriptions, the cluster and the broker."""

from typing import Protocol

import msgspec

from penstock.contracts.configs.topics import MESSAGE_BYTES_DEFAULT
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api.describe_configs import (
    API as API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.listener_config import host_and_port
from penstock_gateway.kafka.parts import HasNodes, HasSequencer, HasSettings, HasTopics
from penstock_gateway.metadata.admin_commands import topic_name_validation_error
from penstock_gateway.metadata.config_updates import CLUSTER
from penstock_gateway.metadata.config_view import (
    BROKER,
    CLIENT_METRICS,
    CONFIG_TYPES,
    GROUP,
    TOPIC,
    ConfigSource,
    Setting,
    cluster_configs,
    cluster_settings,
    group_configs,
    group_settings,
    metrics_subscriptions,
    set_for_broker,
    set_for_cluster,
    settings_of,
    subscription_settings,
)
from penstock_gateway.security.login.logins import HasLogins

Results = list[DescribeConfigsResourceResult]
# Groups and subscriptions to metrics in one request: they need not exist, and each has some KB in the answer.
NAMES_MAX = 10_000
CONFIGS_STEPS = 32  # of a loop, for the description of one resource


class _Rejected(Exception):
    """The resource cannot be described: Kafka's error, and a message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class _Known(msgspec.Struct, frozen=True):
    """The sequencers' answers for all resources of the request, or the failure."""

    topics: dict[str, TopicView] = {}
    cluster: dict[str, str] = {}  # by brokers' names
    groups: dict[str, dict[str, str]] = {}
    metrics: dict[str, dict[str, str]] = {}
    failure: str = ""
    error: ErrorCode = ADMINISTRATION_UNAVAILABLE  # if there is a failure


class Needs(HasLogins, HasNodes, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    slices = Slices()
    resources = await _distinct(request.resources, slices)
    known = await _look_up(gateway, resources)
    return DescribeConfigsResponse(
        results=[
            _describe(gateway, client, known, resource, request)
            async for resource in slices.of(resources, CONFIGS_STEPS)
        ]
    )


async def _distinct(resources: list[DescribeConfigsResource], slices: Slices) -> list[DescribeConfigsResource]:
    """The resources without repetitions, because an answer is a thousand times as large as its part of a request."""
    found: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResource] = {}
    async for each in slices.of(resources):
        found.setdefault((each.resource_type, each.resource_name, tuple(each.configuration_keys or ())), each)
    return list(found.values())


async def _look_up(gateway: Needs, resources: list[DescribeConfigsResource]) -> _Known:
    """Query the present state: this gateway's cache may not have a change that another gateway just confirmed."""
    types = {resource.resource_type for resource in resources if _is_known(resource.resource_type)}
    if not types:
        return _Known()
    names = [resource.resource_name for resource in resources if resource.resource_type == TOPIC]
    legal = [name for name in names if is_legal_topic_name(name)]
    gateway.topics.remove(legal)
    groups = [resource.resource_name for resource in resources if resource.resource_type == GROUP]
    if sum(resource.resource_type in (GROUP, CLIENT_METRICS) for resource in resources) > NAMES_MAX:
        failure = f"one request describes at most {NAMES_MAX} groups and subscriptions: send several"
        return _Known(failure=failure, error=ErrorCode.INVALID_REQUEST)
    try:
        return _Known(
            await gateway.topics.find(legal),
            await cluster_configs(gateway),
            await group_configs(gateway, groups) if groups else {},
            await metrics_subscriptions(gateway) if CLIENT_METRICS in types else {},
        )
    except Unavailable as error:
        return _Known(failure=str(error))


def _is_known(kind: int) -> bool:
    return kind in (TOPIC, BROKER, CLIENT_METRICS, GROUP)


def _describe(
    gateway: Needs,
    client: Client,
    known: _Known,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    error, message, configs = ErrorCode.NONE, "", Results()
    try:
        configs = _asked(_configs(gateway, client, known, resource), resource, request)
    except _Rejected as rejected:
        error, message = rejected.error, str(rejected)
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _configs(gateway: Needs, client: Client, known: _Known, resource: DescribeConfigsResource) -> Results:
    kind, name = resource.resource_type, resource.resource_name
    if not _is_known(kind):
        raise _Rejected(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    if kind == TOPIC and not is_legal_topic_name(name):
        raise _Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, topic_name_validation_error(name))
    if kind == GROUP and not name:
        raise _Rejected(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    if kind == CLIENT_METRICS and not name:
        raise _Rejected(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    if known.failure:
        raise _Rejected(known.error, known.failure)
    if kind == GROUP:
        return [_result(setting) for setting in group_settings(known.groups[name], known.cluster)]
    if kind == CLIENT_METRICS:  # as Kafka: a subscription that does not exist has the defaults
        return [_result(setting) for setting in subscription_settings(known.metrics.get(name, {}))]
    if kind == BROKER and name == CLUSTER:  # as Kafka: only the configurations that were set
        return [_result(setting) for setting in set_for_cluster(known.cluster)]
    if kind == BROKER:
        configs = _broker_configs(gateway, client, name)
        settings = cluster_settings(known.cluster) + set_for_broker(int(name), known.cluster)
        configs += [_result(setting) for setting in settings]
        return sorted(configs, key=lambda config: config.name)
    if name not in known.topics:
        raise _Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
    return [_result(setting) for setting in settings_of(known.topics[name].configs, known.cluster)]


def _asked(configs: Results, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> Results:
    """The requested configurations, with the requested details; null or no names in the request mean all."""
    wanted = frozenset(resource.configuration_keys or ())
    return [
        msgspec.structs.replace(
            config,
            synonyms=config.synonyms if request.include_synonyms else [],
            documentation=config.documentation if request.include_documentation else None,
        )
        for config in configs
        if not wanted or config.name in wanted
    ]


def _result(setting: Setting) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        config_source=setting.source,
        synonyms=[DescribeConfigsSynonym(each.name, each.value, each.source) for each in setting.synonyms],
        config_type=CONFIG_TYPES[setting.config.kind],
        documentation=setting.config.documentation,
    )


def _broker_configs(gateway: Needs, client: Client, name: str) -> Results:
    own, config = gateway.nodes[client.listener], gateway.settings
    relogin_ms = gateway.logins.session_ms_max
    if name != str(own.node_id):
        raise _Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own.node_id} or empty string, but received {name}",
        )
    advertised = f"{client.listener}://{host_and_port(own.host, own.port)}"
    auto_create = "true" if config.auto_create_topics else "false"
    return [
        _broker_config("advertised.listeners", advertised, "LIST", "The address that clients of this listener use."),
        _broker_config("auto.create.topics.enable", auto_create, "BOOLEAN", "Topics are created on first use."),
        _broker_config("connections.max.idle.ms", config.idle_timeout_ms, "LONG", "When idle connections are closed."),
        _broker_config("connections.max.reauth.ms", relogin_ms, "LONG", "When clients must log in again; 0: never."),
        _broker_config("delete.topic.enable", "true", "BOOLEAN", "Topics can be deleted."),
        _broker_config("max.connections", config.connections_max, "INT", "The largest number of connections."),
        _broker_config("message.max.bytes", MESSAGE_BYTES_DEFAULT, "INT", "The default of max.message.bytes."),
        _broker_config("num.partitions", config.default_partitions, "INT", "Partitions of a new topic by default."),
        _broker_config("socket.request.max.bytes", config.frame_bytes_max, "INT", "The largest request in bytes."),
    ]


def _broker_config(name: str, value: str | int, kind: str, documentation: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=str(value),
        read_only=True,
        config_source=ConfigSource.STATIC_BROKER,
        synonyms=[DescribeConfigsSynonym(name, str(value), ConfigSource.STATIC_BROKER)],
        config_type=CONFIG_TYPES[kind],
        documentation=documentation,
    )
