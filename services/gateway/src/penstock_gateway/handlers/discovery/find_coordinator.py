"""FindCoordinator: names the gateway that was asked, or one in the client's zone; each gateway can coordinate every
group and transaction."""

from typing import Protocol

from penstock.kafkawire.api.find_coordinator import (
    API as API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.transaction_commands import transactions_error
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes, HasSequencer
from penstock_gateway.metadata.cluster_view import cluster_of

KEY_GROUP = 0
KEY_TRANSACTION = 1
FIRST_VERSION_BATCHED = 4  # KIP-699


class Needs(HasClock, HasDirectory, HasNodes, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if version >= FIRST_VERSION_BATCHED:
        found = [_coordinator(gateway, client, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(gateway, client, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(gateway: Needs, client: Client, key: str, key_type: int) -> Coordinator:
    error = transactions_error(gateway) if key_type == KEY_TRANSACTION else ErrorCode.NONE
    if error:
        return _rejected(key, error, "transactions are not supported until all sequencers of the cluster are upgraded")
    if key_type in (KEY_GROUP, KEY_TRANSACTION):
        cluster = cluster_of(gateway, client)
        own = gateway.nodes[client.listener]
        node = own if own in cluster.brokers else cluster.leader  # the client may be in another zone
        return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port, error_message=None)
    return _rejected(key, ErrorCode.INVALID_REQUEST, f"unsupported coordinator key type: {key_type}")


def _rejected(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
