"""Converts the acknowledgements of a request to the ranges of a command, in slices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
)
from penstock.contracts.ids import TopicId
from penstock.kafkawire.api import share_acknowledge, share_fetch
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, Located
from penstock_gateway.share.ack_validation import acknowledged_ranges
from penstock_gateway.tail.tail_index import PartitionKey

FREEING = (AcknowledgeType.RELEASE,)  # after these other members may acquire the records

Topics = Iterable[share_fetch.FetchTopic | share_acknowledge.AcknowledgeTopic]
Partitions = Iterable[share_fetch.FetchPartition | share_acknowledge.AcknowledgePartition]


@dataclass(slots=True)
class Acknowledged:
    """A member's acknowledgements in one partition, and their result."""

    key: PartitionKey
    ranges: list[AcknowledgedRange] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def acknowledged_of(
    topics: Topics, located: Located, slices: Slices, *, renews: bool
) -> dict[PartitionKey, Acknowledged]:
    """The acknowledgements of a request by partition, without partitions that have none."""
    found: dict[PartitionKey, Acknowledged] = {}
    async for topic in slices.of(topics):
        partitions: Partitions = topic.partitions
        async for partition in slices.of(partitions):
            if partition.acknowledgement_batches:
                key = (topic.topic_id, partition.partition_index)
                found[key] = _acknowledged(key, partition.acknowledgement_batches, located, renews=renews)
    return found


def topic_ids(topics: Topics) -> list[TopicId]:
    """The ids of the topics in a request."""
    return [topic.topic_id for topic in topics]


def _acknowledged(
    key: PartitionKey,
    batches: Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch],
    located: Located,
    *,
    renews: bool,
) -> Acknowledged:
    topic = located.partition(*key, NO_EPOCH)
    if isinstance(topic, ErrorCode):
        return Acknowledged(key, error=topic)
    ranges = acknowledged_ranges(batches, renews=renews)
    if isinstance(ranges, str):
        return Acknowledged(key, error=ErrorCode.INVALID_REQUEST, message=ranges)
    return Acknowledged(key, ranges)


def frees_records(acknowledged: Iterable[Acknowledged]) -> bool:
    """Whether other members may acquire some of these records now."""
    ranges = (found for each in acknowledged for found in each.ranges)
    return any(each in FREEING for found in ranges for each in found.acknowledge_types)
