"""LeaveGroup: removes members from a classic group; one up to version 2, any number from version 3 on (KIP-345)."""

from typing import Protocol

from penstock.contracts import commands
from penstock.contracts.commands import LeavingMember, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.leave_group import (
    API as API,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer

FIRST_VERSION_BATCHED = 3


class Needs(HasClock, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: LeaveGroupRequest) -> LeaveGroupResponse:
    is_batched = version >= FIRST_VERSION_BATCHED
    members = request.members if is_batched else [MemberIdentity(request.member_id)]
    slices = Slices()
    leaving = [LeavingMember(member.member_id, member.group_instance_id) async for member in slices.of(members)]
    seen_sequence = client.seen_sequence
    command = commands.LeaveGroup(gateway.clock.now_ms(), request.group_id, leaving, seen_sequence)
    try:
        outcome = await group_command(gateway, client, command)
    except Unavailable:
        return LeaveGroupResponse(error_code=GROUPS_UNAVAILABLE)
    if isinstance(outcome, Rejected):
        return LeaveGroupResponse(error_code=error_of(outcome.rejection))
    assert isinstance(outcome, PerItem), f"unexpected outcome of a leave: {outcome}"
    errors = [error_of(rejection) async for rejection in slices.of(outcome.rejections)]
    if not is_batched:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member.member_id, member.group_instance_id, error)
            async for member, error in slices.of(zip(members, errors, strict=True))
        ]
    )
