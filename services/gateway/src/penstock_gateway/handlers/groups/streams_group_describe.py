"""StreamsGroupDescribe: describes streams groups with their topologies, members, tasks and targets (KIP-1071)."""

from collections.abc import Iterable

import msgspec

from penstock.contracts.commands import InternalTopic, OwnedTasks, Subtopology, TaskIds, TaskOffset
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.streams_groups import (
    StreamsGroupsQuery,
    StreamsGroupsView,
    StreamsGroupView,
    StreamsMemberView,
)
from penstock.kafkawire.api import streams_group_describe as wire
from penstock.kafkawire.api.streams_group_describe import (
    API as API,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.feature_levels import NO_STREAMS_GROUPS, HasLevel, streams_groups_error
from penstock_gateway.metadata.authorized_operations import GROUP_OPERATIONS

ASSIGNOR = "sticky"
NOT_REQUESTED, NOT_STORED = 0, 1  # of the description that KIP-1331 has clients send to a plugin of the broker


async def handle(
    gateway: HasLevel, client: Client, version: int, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    groups = [await _describe(gateway, group_id) for group_id in dict.fromkeys(request.group_ids)]
    described = NOT_STORED if request.include_topology_description else NOT_REQUESTED
    operations = {"authorized_operations": GROUP_OPERATIONS} if request.include_authorized_operations else {}
    groups = [
        each if each.error_code else msgspec.structs.replace(each, topology_description_status=described, **operations)
        for each in groups
    ]
    return StreamsGroupDescribeResponse(groups=groups)


async def _describe(gateway: HasLevel, group_id: str) -> wire.DescribedGroup:
    error = streams_groups_error(gateway)
    if error:
        return _rejected(group_id, error, NO_STREAMS_GROUPS)
    if not group_id:
        return _rejected(group_id, ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    # One query per group: the answer for several large groups could be too large for a message.
    query = StreamsGroupsQuery(0, [group_id], fresh=True)
    try:
        view = await gateway.sequencer.query("streams_groups", query, StreamsGroupsView)
    except Unavailable as unavailable:
        return _rejected(group_id, GROUPS_UNAVAILABLE, str(unavailable))
    (group,) = view.groups
    if not group.state:
        message = f"Group {group_id} is not a streams group." if group.is_other else f"Group {group_id} not found."
        return _rejected(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    return _group_answer(group)


def _rejected(group_id: str, error: ErrorCode, message: str) -> wire.DescribedGroup:
    return wire.DescribedGroup(error_code=error, error_message=message, group_id=group_id)


def _group_answer(group: StreamsGroupView) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=wire.Topology(group.topology_epoch, [_subtopology(each) for each in group.subtopologies]),
        members=[_member_answer(member) for member in group.members],
        assignor_name=ASSIGNOR,
    )


def _subtopology(subtopology: Subtopology) -> wire.Subtopology:
    return wire.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        repartition_sink_topics=subtopology.repartition_sink_topics,
        state_changelog_topics=_topics(subtopology.changelog_topics),
        repartition_source_topics=_topics(subtopology.repartition_source_topics),
    )


def _topics(topics: Iterable[InternalTopic]) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.configs))
        for topic in topics
    ]


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[wire.KeyValue]:
    return [wire.KeyValue(key, value) for key, value in pairs]


def _member_answer(member: StreamsMemberView) -> wire.Member:
    return wire.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else wire.Endpoint(*member.endpoint),
        client_tags=_pairs(member.client_tags),
        task_offsets=_offsets(member.task_offsets),
        task_end_offsets=_offsets(member.task_end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
    )


def _offsets(offsets: Iterable[TaskOffset]) -> list[wire.TaskOffset]:
    return [wire.TaskOffset(each.subtopology_id, each.partition, each.offset) for each in offsets]


def _assignment(tasks: OwnedTasks) -> wire.Assignment:
    return wire.Assignment(_tasks(tasks.active), _tasks(tasks.standby), _tasks(tasks.warmup))


def _tasks(tasks: Iterable[TaskIds]) -> list[wire.TaskIds]:
    return [wire.TaskIds(each.subtopology_id, each.partitions) for each in tasks]
