"""JoinGroup: lets a member join a classic group, and answers when the rebalance is over."""

from typing import Protocol

import msgspec

from penstock.contracts import commands
from penstock.contracts.commands import GroupProtocol, Joined, MemberIdRequired, Outcome, Rejected
from penstock.contracts.commands.group_sizes import oversize
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.join_group import API as API, JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import group_answer, group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.coordination.pending_members import HasPendingMembers
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasEntropy, HasSequencer

FIRST_VERSION_KNOWN_MEMBER = 4  # KIP-394
FIRST_VERSION_NULLABLE_PROTOCOL = 7  # KIP-559
MEMBER_ENTROPY_BYTES = 16
# A valid subscription to nothing: version 0, no topics, no user data.
NO_SUBSCRIPTION = bytes(10)


class Needs(HasClock, HasEntropy, HasKnownOutage, HasPendingMembers, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: JoinGroupRequest) -> JoinGroupResponse:
    timeout_ms = _rebalance_timeout_ms(request)
    try:
        command = _command(gateway, client, version, request)
        if command.require_known_member and not command.member_id:
            gateway.pending_members.record(client, command.group_id, command.new_member_id)
        outcome = oversize(command) or await group_command(gateway, client, _without_metadata(command))
        if not isinstance(outcome, MemberIdRequired):
            gateway.pending_members.remove(client, command.group_id, command.member_id or command.new_member_id)
        outcome = await group_answer(gateway, client, "join", request.group_id, outcome, timeout_ms)
    except Unavailable:
        return _rejected(version, GROUPS_UNAVAILABLE, request.member_id)
    return _response(version, request, outcome)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _command(gateway: Needs, client: Client, version: int, request: JoinGroupRequest) -> commands.JoinGroup:
    return commands.JoinGroup(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=_new_member_id(gateway, client, request),
        group_instance_id=request.group_instance_id,
        require_known_member=version >= FIRST_VERSION_KNOWN_MEMBER and request.group_instance_id is None,
        client_id=client.client_id,
        client_host=f"/{client.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        protocol_type=request.protocol_type,
        protocols=[GroupProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        seen_sequence=client.seen_sequence,
        principal=client.principal,
    )


def _without_metadata(command: commands.JoinGroup) -> commands.JoinGroup:
    """The command without the metadata of a client that only gets its member id now (KIP-394).

    It sends the metadata again with that id. So the journal need not hold it twice.
    """
    if command.member_id or not command.require_known_member:
        return command
    protocols = [GroupProtocol(protocol.name, NO_SUBSCRIPTION) for protocol in command.protocols]
    return msgspec.structs.replace(command, protocols=protocols)


def _new_member_id(gateway: Needs, client: Client, request: JoinGroupRequest) -> str:
    prefix = request.group_instance_id if request.group_instance_id is not None else client.client_id
    return f"{prefix}-{gateway.entropy.take(MEMBER_ENTROPY_BYTES).hex()}"


def _response(version: int, request: JoinGroupRequest, outcome: Outcome) -> JoinGroupResponse:
    if isinstance(outcome, MemberIdRequired):
        return _rejected(version, ErrorCode.MEMBER_ID_REQUIRED, outcome.member_id)
    if isinstance(outcome, Rejected):
        # As Kafka: the group has no place for this member id, so the client drops it.
        member_id = "" if outcome.rejection == Rejection.GROUP_FULL else request.member_id
        return _rejected(version, _error(outcome.rejection), member_id)
    assert isinstance(outcome, Joined), f"unexpected outcome of a join: {outcome}"
    return JoinGroupResponse(
        generation_id=outcome.generation,
        protocol_type=outcome.protocol_type,
        protocol_name=outcome.protocol,
        leader=outcome.leader,
        skip_assignment=outcome.skip_assignment,
        member_id=outcome.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata)
            for member in outcome.members
        ],
    )


def _error(rejection: Rejection) -> ErrorCode:
    """Kafka's code. An overload is retriable here, because clients treat an unknown error as final."""
    return GROUPS_UNAVAILABLE if rejection == Rejection.OVERLOADED else error_of(rejection)


def _rejected(version: int, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    no_protocol = None if version >= FIRST_VERSION_NULLABLE_PROTOCOL else ""
    return JoinGroupResponse(error_code=error, protocol_name=no_protocol, member_id=member_id)
