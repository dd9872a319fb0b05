"""Converts the offsets of OffsetCommit and TxnOffsetCommit requests, and builds the answer for each partition."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.contracts.commands import OffsetToCommit
from penstock.kafkawire.api.offset_commit import OffsetCommitRequestTopic
from penstock.kafkawire.api.txn_offset_commit import TxnOffsetCommitRequestTopic
from penstock.kafkawire.error_codes import ErrorCode

Topics = Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]
TopicAnswer = TypeVar("TopicAnswer")
PartitionAnswer = TypeVar("PartitionAnswer")


def offsets_to_commit(topics: Topics) -> list[OffsetToCommit]:
    """The offsets in a request, in its order."""
    return [
        OffsetToCommit(
            topic=topic.name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
        )
        for topic in topics
        for partition in topic.partitions
    ]


def answers_by_topic(
    topics: Topics,
    errors: Iterable[ErrorCode],
    topic_answer: Callable[[str, list[PartitionAnswer]], TopicAnswer],
    partition_answer: Callable[[int, int], PartitionAnswer],
) -> list[TopicAnswer]:
    """An answer for each topic of a request. `errors` has one error per offset, in the order of the request."""
    rest = iter(errors)
    return [
        topic_answer(topic.name, [partition_answer(each.partition_index, next(rest)) for each in topic.partitions])
        for topic in topics
    ]
