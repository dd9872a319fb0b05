"""ShareGroupDescribe: describes share groups with their members and assignments (KIP-932)."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.share import ShareGroupsQuery, ShareGroupsView, ShareGroupView, ShareMemberView
from penstock.kafkawire.api import share_group_describe
from penstock.kafkawire.api.share_group_describe import (
    API as API,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.feature_levels import NO_SHARE_GROUPS, share_groups_error
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasSettings
from penstock_gateway.metadata.authorized_operations import GROUP_OPERATIONS


class Needs(HasClock, HasSequencer, HasSettings, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    groups = [await _describe(gateway, group_id) for group_id in dict.fromkeys(request.group_ids)]
    if request.include_authorized_operations:
        groups = [
            each if each.error_code else msgspec.structs.replace(each, authorized_operations=GROUP_OPERATIONS)
            for each in groups
        ]
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(gateway: Needs, group_id: str) -> share_group_describe.DescribedGroup:
    error = share_groups_error(gateway)
    if error:
        return _rejected(group_id, error, NO_SHARE_GROUPS)
    if not group_id:
        return _rejected(group_id, ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    # One query per group: the answer for several large groups could be too large for a message.
    query = ShareGroupsQuery(0, [group_id], fresh=True)
    try:
        view = await gateway.sequencer.query("share_groups", query, ShareGroupsView)
    except Unavailable as unavailable:
        return _rejected(group_id, GROUPS_UNAVAILABLE, str(unavailable))
    (group,) = view.groups
    if not group.state:
        return _rejected(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    return _group_answer(group)


def _rejected(group_id: str, error: ErrorCode, message: str) -> share_group_describe.DescribedGroup:
    return share_group_describe.DescribedGroup(error_code=error, error_message=message, group_id=group_id)


def _group_answer(group: ShareGroupView) -> share_group_describe.DescribedGroup:
    names = dict(group.topic_names)
    return share_group_describe.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member_answer(member, names) for member in group.members],
    )


def _member_answer(member: ShareMemberView, names: Mapping[bytes, str]) -> share_group_describe.Member:
    return share_group_describe.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        assignment=share_group_describe.Assignment(
            [
                share_group_describe.TopicPartitions(each.topic_id, names[each.topic_id], each.partitions)
                for each in member.assigned
                if each.topic_id in names
            ]
        ),
    )
