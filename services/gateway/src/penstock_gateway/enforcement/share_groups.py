"""The checks of the APIs of share groups (KIP-932)."""

from collections.abc import Iterator

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.groups import (
    group_named,
    hide_groups_with_hidden_topics,
    on_group,
    on_subscription,
    own_operations,
    with_error_and_message,
)
from penstock_gateway.enforcement.guard import MESSAGES, Call, Checks, Message, Proceed, on_items, split, split_by_id
from penstock_gateway.enforcement.records import topic_named
from penstock_gateway.share.sessions import CLOSING_EPOCH, OPENING_EPOCH

READ, DELETE, DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE


async def check_share_fetch(call: Call, request: share_fetch.ShareFetchRequest, proceed: Proceed) -> Message:
    """Check the topics of the request and those of the member's session.

    The session has no refused partitions while the request is served. It keeps them for the next request, as in Kafka.
    The request is passed on even without topics, because each one counts in its session.
    """
    allowed, refused = await split_by_id(call, READ, request.topics)
    _, lost_refusals = await split_by_id(call, READ, _session_topics(call, request))
    refused += lost_refusals
    if not refused:
        return await proceed(request)
    forgotten = [
        share_fetch.ForgottenTopic(topic.topic_id, [each.partition_index for each in topic.partitions])
        for topic, _ in refused
    ]
    response = await proceed(
        msgspec.structs.replace(
            request, topics=allowed, forgotten_topics_data=[*request.forgotten_topics_data, *forgotten]
        )
    )
    if response.error_code:
        return response
    kept = [(topic.topic_id, number) for topic in forgotten for number in topic.partitions]
    call.gateway.share_sessions.keep(call.client, request, kept)
    answers = [_refused_share_fetch(topic, error) for topic, error in refused]
    return msgspec.structs.replace(response, responses=[*response.responses, *answers])


def _session_topics(call: Call, request: share_fetch.ShareFetchRequest) -> list[share_fetch.FetchTopic]:
    """The topics of the session that the request continues, without the partitions that the request names."""
    if request.share_session_epoch in (OPENING_EPOCH, CLOSING_EPOCH):
        return []
    named = {(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions}
    topics: dict[bytes, list[share_fetch.FetchPartition]] = {}
    for topic_id, number in call.gateway.share_sessions.partitions_of(call.client, request):
        if (topic_id, number) not in named:
            topics.setdefault(topic_id, []).append(share_fetch.FetchPartition(number))
    return [share_fetch.FetchTopic(*each) for each in topics.items()]


def _refused_share_fetch(topic: share_fetch.FetchTopic, error: ErrorCode) -> share_fetch.ShareFetchableTopicResponse:
    partitions = [
        share_fetch.PartitionData(
            each.partition_index,
            error,
            acknowledge_error_code=error if each.acknowledgement_batches else ErrorCode.NONE,
            current_leader=share_fetch.LeaderIdAndEpoch(-1, -1),
        )
        for each in topic.partitions
    ]
    return share_fetch.ShareFetchableTopicResponse(topic.topic_id, partitions)


async def check_share_acknowledge(
    call: Call, request: share_acknowledge.ShareAcknowledgeRequest, proceed: Proceed
) -> Message:
    """Check the topics. The request is passed on even without topics, because each one counts in its session."""
    allowed, refused = await split_by_id(call, READ, request.topics)
    if not refused:
        return await proceed(request)
    response = await proceed(msgspec.structs.replace(request, topics=allowed))
    if response.error_code:
        return response
    answers = [
        share_acknowledge.ShareAcknowledgeTopicResponse(
            topic.topic_id,
            [
                share_acknowledge.PartitionData(
                    each.partition_index, error, current_leader=share_acknowledge.LeaderIdAndEpoch(-1, -1)
                )
                for each in topic.partitions
            ],
        )
        for topic, error in refused
    ]
    return msgspec.structs.replace(response, responses=[*response.responses, *answers])


async def check_described_offsets(
    call: Call, request: describe_share_group_offsets.DescribeShareGroupOffsetsRequest, proceed: Proceed
) -> Message:
    """Check the topics of each group; the groups themselves are checked before."""
    asked = []
    refusals: list[list[describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic] | None] = []
    for group in request.groups:
        if group.topics is None:
            asked.append(group)
            refusals.append(None)
            continue
        allowed, refused = await split(call, group.topics, topic_named(DESCRIBE, "topic_name"))
        asked.append(msgspec.structs.replace(group, topics=allowed))
        refusals.append([_refused_described(*each) for each in refused])
    response = await proceed(msgspec.structs.replace(request, groups=asked))
    groups = [_visible(call, *each) for each in zip(response.groups, refusals, strict=True)]
    return msgspec.structs.replace(response, groups=groups)


def _visible(
    call: Call,
    group: describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup,
    refused: list[describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic] | None,
) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup:
    """The group's topics and the refused ones; without the hidden ones (`refused` is None) if it was asked for all."""
    if group.error_code:
        return group
    if refused is not None:
        return msgspec.structs.replace(group, topics=[*group.topics, *refused]) if refused else group
    topics = [
        each
        for each in group.topics
        if call.access.allows(DESCRIBE, ResourceType.TOPIC, each.topic_name, reports=False)
    ]
    return msgspec.structs.replace(group, topics=topics)


def _refused_described(
    topic: describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic, error: ErrorCode
) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic:
    partitions = [
        describe_share_group_offsets.DescribeShareGroupOffsetsResponsePartition(
            number, error_code=error, error_message=MESSAGES[error]
        )
        for number in topic.partitions
    ]
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=partitions)


def _refused_altered(
    topic: alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic, error: ErrorCode
) -> alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic:
    partitions = [
        alter_share_group_offsets.AlterShareGroupOffsetsResponsePartition(each.partition_index, error, MESSAGES[error])
        for each in topic.partitions
    ]
    return alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic(topic.topic_name, partitions=partitions)


def _refused_deleted(
    topic: delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic, error: ErrorCode
) -> delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic:
    return delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic(
        topic.topic_name, error_code=error, error_message=MESSAGES[error]
    )


def _assigned_topics(group: share_group_describe.DescribedGroup) -> Iterator[str]:
    for member in group.members:
        yield from (each.topic_name for each in member.assignment.topic_partitions)


CHECKS: Checks = {
    share_group_heartbeat.API.key: (
        on_group(READ, with_error_and_message(share_group_heartbeat.ShareGroupHeartbeatResponse)),
        on_subscription(share_group_heartbeat.ShareGroupHeartbeatResponse),
    ),
    share_group_describe.API.key: (
        on_items(
            "group_ids",
            group_named(DESCRIBE),
            "groups",
            lambda name, error: share_group_describe.DescribedGroup(error_code=error, group_id=name),
        ),
        hide_groups_with_hidden_topics(share_group_describe.DescribedGroup, _assigned_topics),
        own_operations,
    ),
    share_fetch.API.key: (
        on_group(READ, with_error_and_message(share_fetch.ShareFetchResponse)),
        check_share_fetch,
    ),
    share_acknowledge.API.key: (
        on_group(READ, with_error_and_message(share_acknowledge.ShareAcknowledgeResponse)),
        check_share_acknowledge,
    ),
    describe_share_group_offsets.API.key: (
        on_items(
            "groups",
            lambda group: (DESCRIBE, ResourceType.GROUP, group.group_id),
            "groups",
            lambda group, error: describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(
                group.group_id, error_code=error, error_message=MESSAGES[error]
            ),
        ),
        check_described_offsets,
    ),
    alter_share_group_offsets.API.key: (
        on_group(READ, with_error_and_message(alter_share_group_offsets.AlterShareGroupOffsetsResponse)),
        on_items("topics", topic_named(READ, "topic_name"), "responses", _refused_altered),
    ),
    delete_share_group_offsets.API.key: (
        on_group(DELETE, with_error_and_message(delete_share_group_offsets.DeleteShareGroupOffsetsResponse)),
        on_items("topics", topic_named(READ, "topic_name"), "responses", _refused_deleted),
    ),
}
