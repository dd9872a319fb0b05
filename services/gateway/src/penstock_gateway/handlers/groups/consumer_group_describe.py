"""ConsumerGroupDescribe: describes consumer groups, with the assignments and targets of their members (KIP-848)."""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.contracts.commands import TopicPartitions
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.consumer_groups import (
    ConsumerGroupsQuery,
    ConsumerGroupsView,
    ConsumerGroupView,
    ConsumerMemberView,
)
from penstock.kafkawire.api import consumer_group_describe
from penstock.kafkawire.api.consumer_group_describe import (
    API as API,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.parts import HasSequencer
from penstock_gateway.metadata.authorized_operations import GROUP_OPERATIONS

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(
    gateway: HasSequencer, client: Client, version: int, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = [await _describe(gateway, group_id) for group_id in dict.fromkeys(request.group_ids)]
    if request.include_authorized_operations:
        groups = [each if each.error_code else _with_operations(each) for each in groups]
    return ConsumerGroupDescribeResponse(groups=groups)


def _with_operations(group: consumer_group_describe.DescribedGroup) -> consumer_group_describe.DescribedGroup:
    return msgspec.structs.replace(group, authorized_operations=GROUP_OPERATIONS)


async def _describe(gateway: HasSequencer, group_id: str) -> consumer_group_describe.DescribedGroup:
    if not group_id:
        return _rejected(group_id, ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    # One query per group: the answer for several large groups could be too large for a message.
    query = ConsumerGroupsQuery(0, [group_id], fresh=True)
    try:
        view = await gateway.sequencer.query("consumer_groups", query, ConsumerGroupsView)
    except Unavailable as error:
        return _rejected(group_id, GROUPS_UNAVAILABLE, str(error))
    (group,) = view.groups
    if not group.state:
        message = f"Group {group_id} is not a consumer group." if group.is_classic else f"Group {group_id} not found."
        return _rejected(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    return _group_answer(group)


def _rejected(group_id: str, error: ErrorCode, message: str) -> consumer_group_describe.DescribedGroup:
    return consumer_group_describe.DescribedGroup(error_code=error, error_message=message, group_id=group_id)


def _group_answer(group: ConsumerGroupView) -> consumer_group_describe.DescribedGroup:
    names = dict(group.topic_names)
    return consumer_group_describe.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member_answer(member, names) for member in group.members],
    )


def _member_answer(member: ConsumerMemberView, names: Mapping[bytes, str]) -> consumer_group_describe.Member:
    return consumer_group_describe.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(member.assigned, names),
        target_assignment=_assignment(member.target, names),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(
    partitions: Iterable[TopicPartitions], names: Mapping[bytes, str]
) -> consumer_group_describe.Assignment:
    return consumer_group_describe.Assignment(
        [
            consumer_group_describe.TopicPartitions(each.topic_id, names[each.topic_id], each.partitions)
            for each in partitions
            if each.topic_id in names
        ]
    )
