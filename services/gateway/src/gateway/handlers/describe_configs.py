"""DescribeConfigs: what is in force for topics, the cluster's defaults, and what a gateway can tell of itself."""

import msgspec

from gateway.config_changes import CLUSTER
from gateway.context import Client, Gateway
from gateway.errors import ADMINISTRATION_UNAVAILABLE
from gateway.listeners import host_and_port
from gateway.topic_settings import (
    BROKER,
    CONFIG_TYPES,
    TOPIC,
    ConfigSource,
    Setting,
    cluster_configs,
    cluster_settings,
    settings_of,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.topic_configs import MESSAGE_BYTES_DEFAULT
from penstock.kafkawire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.kafkawire.error_codes import ErrorCode

Results = list[DescribeConfigsResourceResult]


class _Refused(Exception):
    """The resource cannot be described: Kafka's error, and why."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


async def handle(
    gateway: Gateway, client: Client, version: int, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    cluster = _Cluster(gateway)
    return DescribeConfigsResponse(
        results=[await _describe(gateway, client, cluster, resource, request) for resource in request.resources]
    )


class _Cluster:
    """The cluster's defaults as they are when the first resource needs them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._found: dict[str, str] | Unavailable | None = None

    async def configs(self) -> dict[str, str]:
        """By brokers' names; `_Refused` if no sequencer says, also to whoever asks after the first."""
        if self._found is None:
            try:
                self._found = await cluster_configs(self._gateway)
            except Unavailable as error:
                self._found = error
        if isinstance(self._found, Unavailable):
            raise _Refused(ADMINISTRATION_UNAVAILABLE, str(self._found)) from self._found
        return self._found


async def _describe(
    gateway: Gateway,
    client: Client,
    cluster: _Cluster,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    error, message, configs = ErrorCode.NONE, None, Results()
    try:
        configs = _asked(await _configs(gateway, client, cluster, resource), resource, request)
    except _Refused as refused:
        error, message = refused.error, str(refused)
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


async def _configs(gateway: Gateway, client: Client, cluster: _Cluster, resource: DescribeConfigsResource) -> Results:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return await _topic_configs(gateway, cluster, name)
    if kind == BROKER and name == CLUSTER:  # as Kafka: what was set, and nothing else
        settings = cluster_settings(await cluster.configs())
        return [_told(setting) for setting in settings if setting.source == ConfigSource.CLUSTER]
    if kind == BROKER:
        own = _broker_configs(gateway, client, name)
        told = own + [_told(setting) for setting in cluster_settings(await cluster.configs())]
        return sorted(told, key=lambda config: config.name)
    raise _Refused(ErrorCode.INVALID_REQUEST, f"resources of type {kind} are not supported")


def _asked(configs: Results, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> Results:
    """Only the names asked for, only as much about each as was asked for; null and no names mean all of them."""
    wanted = resource.configuration_keys
    return [
        msgspec.structs.replace(
            config,
            synonyms=config.synonyms if request.include_synonyms else [],
            documentation=config.documentation if request.include_documentation else None,
        )
        for config in configs
        if not wanted or config.name in wanted
    ]


async def _topic_configs(gateway: Gateway, cluster: _Cluster, name: str) -> Results:
    try:
        found = await gateway.topics.find([name])
    except Unavailable as error:
        raise _Refused(ADMINISTRATION_UNAVAILABLE, str(error)) from error
    if name not in found:
        raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
    return [_told(setting) for setting in settings_of(found[name].configs, await cluster.configs())]


def _told(setting: Setting) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        config_source=setting.source,
        synonyms=[DescribeConfigsSynonym(each.name, each.value, each.source) for each in setting.synonyms],
        config_type=CONFIG_TYPES[setting.config.kind],
        documentation=setting.config.documentation,
    )


def _broker_configs(gateway: Gateway, client: Client, name: str) -> Results:
    own, config = gateway.nodes[client.listener], gateway.config
    if name != str(own.node_id):
        raise _Refused(ErrorCode.INVALID_REQUEST, f"this is broker {own.node_id}, not {name!r}")
    advertised = f"{client.listener}://{host_and_port(own.host, own.port)}"
    auto_create = "true" if config.auto_create_topics else "false"
    return [
        _broker_config("advertised.listeners", advertised, "LIST", "The address that clients of this listener use."),
        _broker_config("auto.create.topics.enable", auto_create, "BOOLEAN", "Topics are made on first use."),
        _broker_config("connections.max.idle.ms", config.idle_timeout_ms, "LONG", "When idle connections are closed."),
        _broker_config("max.connections", config.connections_max, "INT", "Connections of one gateway process."),
        _broker_config("message.max.bytes", MESSAGE_BYTES_DEFAULT, "INT", "The default of max.message.bytes."),
        _broker_config("num.partitions", config.default_partitions, "INT", "Partitions of a new topic by default."),
        _broker_config("socket.request.max.bytes", config.frame_bytes_max, "INT", "The largest request."),
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
