"""DeleteGroups: deletes empty groups and their offsets (KIP-229)."""

from typing import Protocol

from penstock.contracts.commands import DeleteGroup, Rejected
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.delete_groups import (
    API as API,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer


class Needs(HasClock, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = {group_id: await _delete(gateway, client, group_id) for group_id in dict.fromkeys(request.groups_names)}
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id, error) for group_id, error in results.items()])


async def _delete(gateway: Needs, client: Client, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    command = DeleteGroup(gateway.clock.now_ms(), group_id, client.seen_sequence)
    try:
        outcome = await group_command(gateway, client, command)
    except Unavailable:
        return GROUPS_UNAVAILABLE
    return error_of(outcome.rejection) if isinstance(outcome, Rejected) else ErrorCode.NONE
