"""ListConfigResources: lists topics, brokers, subscriptions to metrics, and groups with configurations (KIP-1142)."""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.list_config_resources import (
    API as API,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasDirectory, HasNodes, HasSequencer, HasSettings, HasTopics
from penstock_gateway.metadata.cluster_view import cluster_of
from penstock_gateway.metadata.config_view import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    groups_with_configs,
    metrics_subscriptions,
)

FIRST_VERSION_TYPES = 1
BROKER_LOGGER = 8  # no gateway has loggers with configurations, so none is listed
SUPPORTED = frozenset((TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP))


class Needs(HasDirectory, HasNodes, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    asked = frozenset(request.resource_types) if version >= FIRST_VERSION_TYPES else {CLIENT_METRICS}
    if not asked <= SUPPORTED:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if not asked or TOPIC in asked:
        try:
            found += [ConfigResource(view.name, TOPIC) for view in await gateway.topics.everything()]
        except Unavailable:
            return ListConfigResourcesResponse(error_code=ADMINISTRATION_UNAVAILABLE)
    if not asked or BROKER in asked:
        found += [ConfigResource(str(node.node_id), BROKER) for node in cluster_of(gateway, client).brokers]
    if not asked or CLIENT_METRICS in asked:
        try:
            found += [ConfigResource(name, CLIENT_METRICS) for name in await metrics_subscriptions(gateway)]
        except Unavailable:
            return ListConfigResourcesResponse(error_code=ADMINISTRATION_UNAVAILABLE)
    if not asked or GROUP in asked:
        try:
            found += [ConfigResource(group_id, GROUP) for group_id in await groups_with_configs(gateway)]
        except Unavailable:
            return ListConfigResourcesResponse(error_code=ADMINISTRATION_UNAVAILABLE)
    return ListConfigResourcesResponse(config_resources=found)
