"""FindCoordinator: names the gateway that was asked, or one in the client's zone; each gateway can coordinate every
group and transaction."""

from typing import Protocol

import msgspec

from penstock.kafkawire.api.find_coordinator import (
    API as API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
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
    found = _found(gateway, client, request.key_type)  # once, as it is the same for every key
    if version >= FIRST_VERSION_BATCHED:
        return FindCoordinatorResponse(
            coordinators=[
                msgspec.structs.replace(found, key=key) async for key in Slices().of(request.coordinator_keys)
            ]
        )
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(gateway: Needs, client: Client, key_type: int) -> Coordinator:
    """The answer for any key of this type, still without the key."""
    error = transactions_error(gateway) if key_type == KEY_TRANSACTION else ErrorCode.NONE
    if error:
        return _rejected(error, "transactions are not supported until all sequencers of the cluster are upgraded")
    if key_type in (KEY_GROUP, KEY_TRANSACTION):
        cluster = cluster_of(gateway, client)
        own = gateway.nodes[client.listener]
        node = own if own in cluster.brokers else cluster.leader  # the client may be in another zone
        return Coordinator(node_id=node.node_id, host=node.host, port=node.port, error_message=None)
    return _rejected(ErrorCode.INVALID_REQUEST, f"unsupported coordinator key type: {key_type}")


def _rejected(error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(node_id=-1, host="", port=-1, error_code=error, error_message=message)
