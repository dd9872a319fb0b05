"""Converts the offsets of OffsetCommit and TxnOffsetCommit requests, and builds the answer for each partition.

Newer requests name topics by id. Sequencers keep offsets by name. A command has the ids, too, because the topic may be
deleted and made again on the way.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from penstock.contracts.commands import OffsetToCommit
from penstock.contracts.commands.group_sizes import OFFSET_METADATA_BYTES_MAX
from penstock.contracts.ids import NO_TOPIC_ID, TopicId
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.offset_commit import OffsetCommitRequestTopic
from penstock.kafkawire.api.offset_fetch import OffsetFetchRequestTopics
from penstock.kafkawire.api.txn_offset_commit import TxnOffsetCommitRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.topic_cache import TopicCache

METADATA_TOO_LARGE = error_of(Rejection.METADATA_TOO_LARGE)
Topics = Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]
NamedTopic = TypeVar("NamedTopic", OffsetCommitRequestTopic, TxnOffsetCommitRequestTopic, OffsetFetchRequestTopics)
TopicAnswer = TypeVar("TopicAnswer")
PartitionAnswer = TypeVar("PartitionAnswer")


async def with_names(topics: TopicCache, requested: Sequence[NamedTopic]) -> list[NamedTopic]:
    """The topics of a request by id, with their names; the name of an unknown topic is empty."""
    found = await topics.find_ids(dict.fromkeys(topic.topic_id for topic in requested))
    return [
        msgspec.structs.replace(topic, name=found[topic.topic_id].name) if topic.topic_id in found else topic
        for topic in requested
    ]


def ids_by_name(topics: Topics) -> dict[str, TopicId]:
    """The ids that the client gave, by the names of the topics."""
    return {topic.name: topic.topic_id for topic in topics if topic.topic_id != NO_TOPIC_ID and topic.name}


async def offsets_to_commit(topics: Topics, slices: Slices) -> list[OffsetToCommit]:
    """The offsets in a request, in its order."""
    return [
        OffsetToCommit(
            topic=topic.name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
        )
        async for topic, partition in slices.of((topic, each) for topic in topics for each in topic.partitions)
    ]


def own_error(offset: OffsetToCommit, by_id: bool) -> ErrorCode:
    """The error of an offset that is rejected here, because its topic or its metadata is nothing for the sequencers."""
    if by_id and not offset.topic:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return METADATA_TOO_LARGE if len(offset.metadata.encode()) > OFFSET_METADATA_BYTES_MAX else ErrorCode.NONE


async def answers_by_topic(
    topics: Topics,
    errors: Iterable[ErrorCode],
    slices: Slices,
    topic_answer: Callable[[str, TopicId, list[PartitionAnswer]], TopicAnswer],
    partition_answer: Callable[[int, int], PartitionAnswer],
) -> list[TopicAnswer]:
    """An answer for each topic of a request. `errors` has one error per offset, in the order of the request."""
    rest = iter(errors)
    return [
        topic_answer(
            topic.name,
            topic.topic_id,
            [
                partition_answer(index, next(rest))
                async for index in slices.of(each.partition_index for each in topic.partitions)
            ],
        )
        async for topic in slices.of(topic for topic in topics)
    ]
