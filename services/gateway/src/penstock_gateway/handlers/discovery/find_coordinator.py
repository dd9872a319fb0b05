"""FindCoordinator: names the same gateway for a group, transactional id or share partition whichever gateway is asked.

Every gateway can coordinate all of them. But a client with two different answers gives up its first JoinGroup. Then
its group waits for the member of that request (ADR 0062).
"""

import re
from typing import Protocol

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
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes, HasSequencer, HasSettings
from penstock_gateway.metadata.cluster_view import ClusterView, cluster_of, coordinator_of

KEY_GROUP = 0
KEY_TRANSACTION = 1
KEY_SHARE = 2
FIRST_VERSION_BATCHED = 4  # KIP-699
FIRST_VERSION_SHARE = 6  # KIP-932
SHARE_PARTITION = re.compile(r"[A-Za-z0-9_-]{22}:[0-9]{1,10}")  # topic id and partition


class Needs(HasClock, HasDirectory, HasNodes, HasSequencer, HasSettings, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    cluster, error = cluster_of(gateway, client), _error(gateway, version, request.key_type)
    if version >= FIRST_VERSION_BATCHED:
        return FindCoordinatorResponse(
            coordinators=[
                _found(cluster, request.key_type, key, error) async for key in Slices().of(request.coordinator_keys)
            ]
        )
    found = _found(cluster, request.key_type, request.key, error)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _error(gateway: Needs, version: int, key_type: int) -> tuple[ErrorCode, str]:
    """The error of every key of this type, with its text."""
    if key_type == KEY_TRANSACTION and (error := transactions_error(gateway)):
        return error, "transactions are not supported until all sequencers of the cluster are upgraded"
    has_share_keys = gateway.settings.share_groups and version >= FIRST_VERSION_SHARE
    if key_type in (KEY_GROUP, KEY_TRANSACTION) or (key_type == KEY_SHARE and has_share_keys):
        return ErrorCode.NONE, ""
    return ErrorCode.INVALID_REQUEST, f"unsupported coordinator key type: {key_type}"


def _found(cluster: ClusterView, key_type: int, key: str, error: tuple[ErrorCode, str]) -> Coordinator:
    code, message = error
    if not code and key_type == KEY_SHARE and not _is_share_key(key):
        code, message = ErrorCode.INVALID_REQUEST, f"the key of a share partition is group:topicId:partition, not {key}"
    if code:
        return Coordinator(key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
    node = coordinator_of(cluster, key)
    return Coordinator(key, node_id=node.node_id, host=node.host, port=node.port, error_message=None)


def _is_share_key(key: str) -> bool:
    """Whether it has a group id that is not blank, a topic id and a partition."""
    group_id, _, partition = key.partition(":")
    return bool(group_id.strip() and SHARE_PARTITION.fullmatch(partition))
