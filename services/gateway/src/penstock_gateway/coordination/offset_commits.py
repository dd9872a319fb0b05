"""Converts the offsets of OffsetCommit and TxnOffsetCommit requests, and builds the answer for each partition."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.contracts.commands import OffsetToCommit
from penstock.contracts.commands.group_sizes import OFFSET_METADATA_BYTES_MAX
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.offset_commit import OffsetCommitRequestTopic
from penstock.kafkawire.api.txn_offset_commit import TxnOffsetCommitRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.error_mapping import error_of

METADATA_TOO_LARGE = error_of(Rejection.METADATA_TOO_LARGE)
Topics = Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]
TopicAnswer = TypeVar("TopicAnswer")
PartitionAnswer = TypeVar("PartitionAnswer")


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


def is_oversized(offset: OffsetToCommit) -> bool:
    """Whether the metadata is too long for the sequencers, so that the offset is rejected here."""
    return len(offset.metadata.encode()) > OFFSET_METADATA_BYTES_MAX


async def answers_by_topic(
    topics: Topics,
    errors: Iterable[ErrorCode],
    slices: Slices,
    topic_answer: Callable[[str, list[PartitionAnswer]], TopicAnswer],
    partition_answer: Callable[[int, int], PartitionAnswer],
) -> list[TopicAnswer]:
    """An answer for each topic of a request. `errors` has one error per offset, in the order of the request."""
    rest = iter(errors)
    return [
        topic_answer(
            topic.name,
            [
                partition_answer(index, next(rest))
                async for index in slices.of(each.partition_index for each in topic.partitions)
            ],
        )
        async for topic in slices.of(topic for topic in topics)
    ]
