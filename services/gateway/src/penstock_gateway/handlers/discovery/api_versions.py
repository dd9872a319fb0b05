"""ApiVersions: lists the APIs with their versions, and the features of the cluster (KIP-35, KIP-511)."""

from typing import Protocol

from penstock.contracts.levels import (
    CONSUMER_GROUPS_LEVEL,
    DEAD_LETTERS_LEVEL,
    SHARE_GROUPS_LEVEL,
    STREAMS_GROUPS_LEVEL,
    TRANSACTIONS_LEVEL,
)
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.api.api_versions import (
    API as API,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from penstock.kafkawire.api.get_telemetry_subscriptions import API as GET_TELEMETRY_SUBSCRIPTIONS
from penstock.kafkawire.api.push_telemetry import API as PUSH_TELEMETRY
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasNodes, HasSequencer, HasSettings
from penstock_gateway.telemetry.telemetry import HasTelemetry

# Name, version, and the cluster's level that it needs.
FEATURES = (
    ("group.version", 1, CONSUMER_GROUPS_LEVEL),  # consumer groups (KIP-848)
    # Each transaction has its own epoch, and the first batch adds a partition to it (KIP-890).
    ("transaction.version", 2, TRANSACTIONS_LEVEL),
    ("streams.version", 1, STREAMS_GROUPS_LEVEL),  # streams groups (KIP-1071)
)
# If share groups (KIP-932) are enabled. Each version replaces the one before it.
SHARE_FEATURES = (("share.version", 1, SHARE_GROUPS_LEVEL), ("share.version", 2, DEAD_LETTERS_LEVEL))
UNKNOWN_EPOCH = -1
NO_NODE = -1
# As in Kafka without a receiver of metrics, they are not listed in a cluster without subscriptions to metrics.
TELEMETRY_APIS = (GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key)
FIRST_VERSION_MIN_ZERO = 4  # older clients may fail at a feature whose minimum is 0 (KAFKA-17011)


class Needs(HasNodes, HasSequencer, HasSettings, HasTelemetry, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: ApiVersionsRequest) -> ApiVersionsResponse:
    client.software_name, client.software_version = request.client_software_name, request.client_software_version
    error = _destination_error(gateway, client, request)
    if error:
        return ApiVersionsResponse(error_code=error)
    hidden = () if gateway.telemetry.is_advertised else TELEMETRY_APIS
    level_min = 0 if version >= FIRST_VERSION_MIN_ZERO else 1
    features = (*FEATURES, *SHARE_FEATURES) if gateway.settings.share_groups else FEATURES
    supported = {name: newest for name, newest, _ in features}
    level = gateway.sequencer.seen_level or 0
    reached = {name: newest for name, newest, needed_level in features if level >= needed_level}
    return ApiVersionsResponse(
        api_keys=[each for each in _ranges() if each.api_key not in hidden],
        supported_features=[SupportedFeatureKey(name, level_min, newest) for name, newest in supported.items()],
        finalized_features_epoch=level if reached else UNKNOWN_EPOCH,  # it grows with the finalized features
        finalized_features=[FinalizedFeatureKey(name, newest, newest) for name, newest in reached.items()],
    )


def _destination_error(gateway: Needs, client: Client, request: ApiVersionsRequest) -> ErrorCode:
    """The error if the client means another broker or another cluster (KIP-1242): it looks for the brokers again."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    cluster = gateway.settings.cluster
    if request.cluster_id is None or not cluster:  # before a login that chooses the cluster, it is unknown
        return ErrorCode.NONE
    meant, own = (request.cluster_id, request.node_id), (cluster, gateway.nodes[client.listener].node_id)
    return ErrorCode.NONE if meant == own else ErrorCode.REBOOTSTRAP_REQUIRED


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version that we do not know, to be sent as version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges())


def _ranges() -> list[ApiVersion]:
    """As Kafka does with those of share groups where these are off: their answers say so, and clients understand it."""
    return [ApiVersion(api.key, api.min_version, api.max_version) for api in API_TABLE.values()]
