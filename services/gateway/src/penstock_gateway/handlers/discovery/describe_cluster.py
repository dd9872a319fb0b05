"""DescribeCluster: lists the brokers that this client may use (KIP-700)."""

from typing import Protocol

from penstock.kafkawire.api.describe_cluster import (
    API as API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasDirectory, HasNodes, HasSettings
from penstock_gateway.metadata.authorized_operations import cluster_operations
from penstock_gateway.metadata.cluster_view import cluster_of

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2
MISMATCHED = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"


class Needs(HasDirectory, HasNodes, HasSettings, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != ENDPOINT_BROKERS:  # KIP-919
        is_known = request.endpoint_type == ENDPOINT_CONTROLLERS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = MISMATCHED if is_known else f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=error, error_message=message)
    cluster = cluster_of(gateway, client)
    return DescribeClusterResponse(
        cluster_id=gateway.settings.cluster,
        controller_id=cluster.leader.node_id,
        brokers=[DescribeClusterBroker(node.node_id, node.host, node.port, node.zone) for node in cluster.brokers],
        cluster_authorized_operations=cluster_operations(request.include_cluster_authorized_operations),
    )
