"""The checks of the APIs that read, delete and describe the records of topics."""

from typing import Any

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import delete_records, describe_producers, fetch, list_offsets, offset_for_leader_epoch
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.guard import (
    MESSAGES,
    Call,
    Checks,
    Message,
    Proceed,
    Resource,
    on_items,
    split,
    split_by_id,
)

FIRST_VERSION_FETCH_IDS = 13
NOTHING = -1


def topic_named(operation: AclOperation, name: str = "name") -> Any:
    """The need of an item that names a topic in its attribute `name`."""

    def needed(item: Message) -> Resource:
        return operation, ResourceType.TOPIC, getattr(item, name)

    return needed


def _refused_offsets(topic: list_offsets.ListOffsetsTopic, error: ErrorCode) -> Message:
    partitions = [list_offsets.ListOffsetsPartitionResponse(each.partition_index, error) for each in topic.partitions]
    return list_offsets.ListOffsetsTopicResponse(topic.name, partitions)


def _refused_deletions(topic: delete_records.DeleteRecordsTopic, error: ErrorCode) -> Message:
    partitions = [
        delete_records.DeleteRecordsPartitionResult(each.partition_index, NOTHING, error) for each in topic.partitions
    ]
    return delete_records.DeleteRecordsTopicResult(topic.name, partitions)


def _refused_producers(topic: describe_producers.TopicRequest, error: ErrorCode) -> Message:
    partitions = [
        describe_producers.PartitionResponse(number, error, MESSAGES[error]) for number in topic.partition_indexes
    ]
    return describe_producers.TopicResponse(topic.name, partitions)


def _refused_epochs(topic: offset_for_leader_epoch.OffsetForLeaderTopic, error: ErrorCode) -> Message:
    partitions = [offset_for_leader_epoch.EpochEndOffset(error, each.partition) for each in topic.partitions]
    return offset_for_leader_epoch.OffsetForLeaderTopicResult(topic.topic, partitions)


_epochs_of_topics = on_items("topics", topic_named(AclOperation.DESCRIBE, "topic"), "topics", _refused_epochs)


async def check_epochs(call: Call, request: Message, proceed: Proceed) -> Message:
    """Allow a broker of the cluster to ask about all topics."""
    if call.access.grants(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return await proceed(request)
    return await _epochs_of_topics(call, request, proceed)


async def check_fetch(call: Call, request: fetch.FetchRequest, proceed: Proceed) -> Message:
    """Check each topic of a Fetch, by name or by id."""
    if call.version >= FIRST_VERSION_FETCH_IDS:
        allowed, refused = await split_by_id(call, AclOperation.READ, request.topics)
    else:
        allowed, refused = await split(call, request.topics, topic_named(AclOperation.READ, "topic"))
    if not refused:
        return await proceed(request)
    response = fetch.FetchResponse()
    if allowed:
        response = await proceed(msgspec.structs.replace(request, topics=allowed))
    answers = [refused_fetch(topic, error) for topic, error in refused]
    return msgspec.structs.replace(response, responses=[*response.responses, *answers])


def refused_fetch(topic: fetch.FetchTopic, error: ErrorCode) -> fetch.FetchableTopicResponse:
    """The answer to each partition of a topic that the client may not read."""
    partitions = [fetch.PartitionData(each.partition, error, NOTHING, records=b"") for each in topic.partitions]
    return fetch.FetchableTopicResponse(topic.topic, topic.topic_id, partitions)


CHECKS: Checks = {
    fetch.API.key: (check_fetch,),
    list_offsets.API.key: (on_items("topics", topic_named(AclOperation.DESCRIBE), "topics", _refused_offsets),),
    delete_records.API.key: (on_items("topics", topic_named(AclOperation.DELETE), "topics", _refused_deletions),),
    offset_for_leader_epoch.API.key: (check_epochs,),
    describe_producers.API.key: (on_items("topics", topic_named(AclOperation.READ), "topics", _refused_producers),),
}
