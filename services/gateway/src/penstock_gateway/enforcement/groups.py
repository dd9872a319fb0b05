"""The checks of the APIs of groups and their offsets."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.guard import (
    MESSAGES,
    Call,
    Check,
    Checks,
    Message,
    Proceed,
    Resource,
    on_items,
    on_request,
    on_results,
    on_topics,
    split,
    split_topics,
)
from penstock_gateway.enforcement.records import topic_named
from penstock_gateway.handlers.groups.offset_fetch import failed_topic
from penstock_gateway.metadata.authorized_operations import GROUP_OPERATIONS

READ, DELETE, DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
FIRST_VERSION_NULLABLE_PROTOCOL = 7
FIRST_VERSION_BATCHED_FETCH = 8  # KIP-709
FIRST_VERSION_COMMIT_IDS = 10  # of topics
FIRST_VERSION_FETCH_IDS = 10
FIRST_VERSION_GROUP_ERROR = 2  # of OffsetFetch
NO_OFFSET = -1
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def on_group(operation: AclOperation, refused: Callable[[int, Any, ErrorCode], Message]) -> Check:
    """A check of the group that the request names."""
    return on_request(operation, ResourceType.GROUP, lambda request: request.group_id or "", refused)


def group_named(operation: AclOperation) -> Callable[[str], Resource]:
    """The need of an item that is the name of a group."""
    return lambda name: (operation, ResourceType.GROUP, name)


def on_subscription(response: type[msgspec.Struct]) -> Check:
    """A check of the topics that a heartbeat subscribes to: one hidden topic refuses the heartbeat (KIP-848)."""

    async def check(call: Call, request: Message, proceed: Proceed) -> Message:
        _, refused = await split(
            call, request.subscribed_topic_names, lambda name: (DESCRIBE, ResourceType.TOPIC, name)
        )
        if not refused:
            return await proceed(request)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response(error_code=error, error_message=MESSAGES[error])

    return check


async def hide_assigned_topics(
    call: Call, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, proceed: Proceed
) -> Message:
    """Leave topics out of an assignment that the client may not see: sequencers choose the topics of a pattern.

    A topic that is not found has just been created or deleted. It stays, because its id shows no name.
    """
    response = await proceed(request)
    if response.assignment is None:
        return response
    assigned = response.assignment.topic_partitions
    views = await call.gateway.topics.find_ids([each.topic_id for each in assigned])
    hidden = {
        topic_id
        for topic_id, view in views.items()
        if not call.access.allows(DESCRIBE, ResourceType.TOPIC, view.name, reports=False)
    }
    if not hidden:
        return response
    seen = [each for each in assigned if each.topic_id not in hidden]
    return msgspec.structs.replace(response, assignment=consumer_group_heartbeat.Assignment(seen))


async def own_operations(call: Call, request: Message, proceed: Proceed) -> Message:
    """Replace the operations in descriptions of groups by those that the client may do."""
    response = await proceed(request)
    if not request.include_authorized_operations:
        return response
    groups = [
        msgspec.structs.replace(group, authorized_operations=_group_operations(call, group.group_id))
        if not group.error_code
        else group
        for group in response.groups
    ]
    return msgspec.structs.replace(response, groups=groups)


def _group_operations(call: Call, group_id: str) -> int:
    return GROUP_OPERATIONS & call.access.operations(ResourceType.GROUP, group_id)


def hide_groups_with_hidden_topics(
    described: Callable[..., Message], topics_of: Callable[[Message], Iterator[str]]
) -> Check:
    """A check that hides the members of a group if they are assigned topics that the client may not see."""

    async def check(call: Call, request: Message, proceed: Proceed) -> Message:
        response = await proceed(request)
        groups = []
        for group in response.groups:
            names = dict.fromkeys(topics_of(group))
            if all(call.access.allows(DESCRIBE, ResourceType.TOPIC, name) for name in names):
                groups.append(group)
                continue
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            groups.append(described(group_id=group.group_id, error_code=error, error_message=HIDDEN_TOPICS))
        return msgspec.structs.replace(response, groups=groups)

    return check


def _assigned_topics(group: consumer_group_describe.DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            yield from (each.topic_name for each in assignment.topic_partitions)


def _refused_join(version: int, request: Message, error: ErrorCode) -> Message:
    no_protocol = None if version >= FIRST_VERSION_NULLABLE_PROTOCOL else ""
    return join_group.JoinGroupResponse(error_code=error, protocol_name=no_protocol)


def _refused_commits(topic: offset_commit.OffsetCommitRequestTopic, error: ErrorCode) -> Message:
    partitions = [offset_commit.OffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions]
    return offset_commit.OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


def _refused_commit(version: int, request: offset_commit.OffsetCommitRequest, error: ErrorCode) -> Message:
    return offset_commit.OffsetCommitResponse(topics=[_refused_commits(topic, error) for topic in request.topics])


def _refused_offset_deletions(topic: offset_delete.OffsetDeleteRequestTopic, error: ErrorCode) -> Message:
    partitions = [offset_delete.OffsetDeleteResponsePartition(each.partition_index, error) for each in topic.partitions]
    return offset_delete.OffsetDeleteResponseTopic(topic.name, partitions)


def _with_error(response: type[msgspec.Struct]) -> Callable[[int, Any, ErrorCode], Message]:
    return lambda version, request, error: response(error_code=error)


def with_error_and_message(response: type[msgspec.Struct]) -> Callable[[int, Any, ErrorCode], Message]:
    """An answer with an error and its text for the whole request."""
    return lambda version, request, error: response(error_code=error, error_message=MESSAGES[error])


async def check_group_list(call: Call, request: Message, proceed: Proceed) -> Message:
    """List all groups for clients that may describe the cluster, and else those that the client may describe."""
    if call.access.grants(DESCRIBE, ResourceType.CLUSTER):
        return await proceed(request)
    return await _described_groups(call, request, proceed)


_described_groups = on_results("groups", DESCRIBE, ResourceType.GROUP, "group_id")


async def check_offset_fetch(call: Call, request: offset_fetch.OffsetFetchRequest, proceed: Proceed) -> Message:
    """Check the groups of an OffsetFetch, and the topics of each."""
    if call.version >= FIRST_VERSION_BATCHED_FETCH:
        return await _check_fetched_groups(call, request, proceed)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not call.access.allows(DESCRIBE, ResourceType.GROUP, request.group_id):
        if call.version >= FIRST_VERSION_GROUP_ERROR:
            return offset_fetch.OffsetFetchResponse(error_code=error)
        return offset_fetch.OffsetFetchResponse(topics=[_refused_topic(each, error) for each in request.topics or ()])
    if request.topics is None:
        return await _visible_topics(call, request, proceed)
    return await _asked_topics(call, request, proceed)


def _refused_topic(topic: offset_fetch.OffsetFetchRequestTopic, error: ErrorCode) -> Message:
    partitions = [
        offset_fetch.OffsetFetchResponsePartition(index, NO_OFFSET, error_code=error)
        for index in topic.partition_indexes
    ]
    return offset_fetch.OffsetFetchResponseTopic(topic.name, partitions)


_visible_topics = on_results("topics", DESCRIBE, ResourceType.TOPIC, "name")
_asked_topics = on_items("topics", topic_named(DESCRIBE), "topics", _refused_topic)


async def _check_fetched_groups(call: Call, request: offset_fetch.OffsetFetchRequest, proceed: Proceed) -> Message:
    """Pass on the allowed parts of all groups in one request, and add the refused parts to its answer."""
    asked, refused_topics, answers = [], {}, []
    for group in request.groups:
        if not call.access.allows(DESCRIBE, ResourceType.GROUP, group.group_id):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            answers.append(offset_fetch.OffsetFetchResponseGroup(group.group_id, error_code=error))
        elif group.topics is None:
            asked.append(group)
        else:
            allowed, refused = await split_topics(call, DESCRIBE, FIRST_VERSION_FETCH_IDS, group.topics)
            asked.append(msgspec.structs.replace(group, topics=allowed))
            refused_topics[len(asked) - 1] = [failed_topic(*each) for each in refused]
    found = (await proceed(msgspec.structs.replace(request, groups=asked))).groups if asked else []
    groups = [
        _visible(call, group, refused_topics.get(place)) if not group.error_code else group
        for place, group in enumerate(found)
    ]
    return offset_fetch.OffsetFetchResponse(groups=[*groups, *answers])


def _visible(
    call: Call,
    group: offset_fetch.OffsetFetchResponseGroup,
    refused: list[offset_fetch.OffsetFetchResponseTopics] | None,
) -> offset_fetch.OffsetFetchResponseGroup:
    """The group's topics and the refused ones; without the hidden ones (`refused` is None) if it was asked for all."""
    if refused is not None:
        return msgspec.structs.replace(group, topics=[*group.topics, *refused]) if refused else group
    seen = [each for each in group.topics if call.access.allows(DESCRIBE, ResourceType.TOPIC, each.name, reports=False)]
    return msgspec.structs.replace(group, topics=seen)


CHECKS: Checks = {
    join_group.API.key: (on_group(READ, _refused_join),),
    sync_group.API.key: (on_group(READ, _with_error(sync_group.SyncGroupResponse)),),
    heartbeat.API.key: (on_group(READ, _with_error(heartbeat.HeartbeatResponse)),),
    leave_group.API.key: (on_group(READ, _with_error(leave_group.LeaveGroupResponse)),),
    offset_commit.API.key: (
        on_group(READ, _refused_commit),
        on_topics(READ, FIRST_VERSION_COMMIT_IDS, _refused_commits),
    ),
    offset_fetch.API.key: (check_offset_fetch,),
    offset_delete.API.key: (
        on_group(DELETE, _with_error(offset_delete.OffsetDeleteResponse)),
        on_items("topics", topic_named(READ), "topics", _refused_offset_deletions),
    ),
    describe_groups.API.key: (
        on_items(
            "groups",
            group_named(DESCRIBE),
            "groups",
            lambda name, error: describe_groups.DescribedGroup(error_code=error, group_id=name),
        ),
        own_operations,
    ),
    list_groups.API.key: (check_group_list,),
    delete_groups.API.key: (
        on_items("groups_names", group_named(DELETE), "results", delete_groups.DeletableGroupResult),
    ),
    consumer_group_heartbeat.API.key: (
        on_group(READ, with_error_and_message(consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)),
        on_subscription(consumer_group_heartbeat.ConsumerGroupHeartbeatResponse),
        hide_assigned_topics,
    ),
    consumer_group_describe.API.key: (
        on_items(
            "group_ids",
            group_named(DESCRIBE),
            "groups",
            lambda name, error: consumer_group_describe.DescribedGroup(error_code=error, group_id=name),
        ),
        hide_groups_with_hidden_topics(consumer_group_describe.DescribedGroup, _assigned_topics),
        own_operations,
    ),
}
