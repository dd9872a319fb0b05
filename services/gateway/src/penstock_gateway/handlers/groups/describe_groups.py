"""DescribeGroups: describes groups with their members; an unknown group is "Dead", from version 6 on with an error."""

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import DescribeGroupsQuery, DescribeGroupsView, GroupView, MemberView
from penstock.kafkawire.api.describe_groups import (
    API as API,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.parts import HasSequencer
from penstock_gateway.metadata.authorized_operations import GROUP_OPERATIONS

DEAD = "Dead"
FIRST_VERSION_NOT_FOUND = 6  # KIP-1043


async def handle(
    gateway: HasSequencer, client: Client, version: int, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    groups = [await _describe(gateway, version, group_id) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        groups = [_with_operations(group) for group in groups]
    return DescribeGroupsResponse(groups=groups)


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    return group if group.error_code else msgspec.structs.replace(group, authorized_operations=GROUP_OPERATIONS)


async def _describe(gateway: HasSequencer, version: int, group_id: str) -> DescribedGroup:
    # One query per group: the answer for several large groups could be too large for a message.
    query = DescribeGroupsQuery(0, [group_id], fresh=True)
    try:
        view = await gateway.sequencer.query("describe_groups", query, DescribeGroupsView)
    except Unavailable:
        return DescribedGroup(error_code=GROUPS_UNAVAILABLE, group_id=group_id)
    (group,) = view.groups
    if group.state == DEAD and version >= FIRST_VERSION_NOT_FOUND:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribedGroup(error_code=error, error_message=message, group_id=group_id, group_state=DEAD)
    return _group_answer(group)


def _group_answer(group: GroupView) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[_member_answer(member) for member in group.members],
    )


def _member_answer(member: MemberView) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
