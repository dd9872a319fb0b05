"""SyncGroup: takes the assignments of all members from the leader, and gives each member its own."""

from typing import Protocol

from penstock.contracts import commands
from penstock.contracts.commands import MemberAssignment, Rejected, Synced
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.sync_group import API as API, SyncGroupRequest, SyncGroupResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import WAIT_S_MAX, group_answer, group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer

FIRST_VERSION_PROTOCOL = 5  # KIP-559
# The request has no time-out field; the sequencers end the wait when the rebalance time-out is over.
TIMEOUT_MS = int(WAIT_S_MAX * 1000)


class Needs(HasClock, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: SyncGroupRequest) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if version >= FIRST_VERSION_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        outcome = await group_command(gateway, client, _command(gateway, request))
        outcome = await group_answer(gateway, client, "sync", request.group_id, outcome, TIMEOUT_MS)
    except Unavailable:
        return SyncGroupResponse(error_code=GROUPS_UNAVAILABLE)
    if isinstance(outcome, Rejected):
        return SyncGroupResponse(error_code=error_of(outcome.rejection))
    assert isinstance(outcome, Synced), f"unexpected outcome of a sync: {outcome}"
    return SyncGroupResponse(
        protocol_type=outcome.protocol_type,
        protocol_name=outcome.protocol,
        assignment=outcome.assignment,
    )


def _command(gateway: Needs, request: SyncGroupRequest) -> commands.SyncGroup:
    return commands.SyncGroup(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=[MemberAssignment(each.member_id, bytes(each.assignment)) for each in request.assignments],
    )
