"""One partition of a fetch: the request for it, its state as far as it is known, and its readable bytes. Pure."""

from dataclasses import dataclass

from penstock.contracts.batches import Extent
from penstock.contracts.errors import PenstockError
from penstock.kafkawire.api.fetch import FetchableTopicResponse, FetchPartition, FetchRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.fetch.partition_read import PartitionRead
from penstock_gateway.metadata.partition_lookup import TopicRef
from penstock_gateway.tail.tail_index import PartitionKey, PartitionView

FIRST_VERSION_IDS = 13  # from here on topics have ids in place of names (KIP-516)
READ_COMMITTED = 1


@dataclass(slots=True)
class RequestedPartition:
    """One partition of the request, and its state as far as it is known."""

    topic: TopicRef
    request: FetchPartition
    name: str = ""  # of the topic
    key: PartitionKey | None = None
    leader_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE
    view: PartitionView | None = None
    read: PartitionRead | None = None
    read_error: PenstockError | None = None

    @property
    def bytes_max(self) -> int:
        """How many bytes the client asks for of this partition, at least one."""
        return max(self.request.partition_max_bytes, 1)


async def requested_partitions(version: int, request: FetchRequest, slices: Slices) -> list[RequestedPartition]:
    """The partitions in the order of the request.

    If it names one several times, the last mention counts, at the place of the first: Kafka puts them into a map.
    """
    by_id = version >= FIRST_VERSION_IDS
    found: dict[tuple[TopicRef, int], RequestedPartition] = {}
    async for topic in slices.of(request.topics):
        ref: TopicRef = topic.topic_id if by_id else topic.topic
        async for partition in slices.of(topic.partitions):
            found[ref, partition.partition] = RequestedPartition(ref, partition)
    return list(found.values())


def topic_response(topic: TopicRef) -> FetchableTopicResponse:
    """The answer for a topic, still without partitions."""
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic)
    return FetchableTopicResponse(topic_id=topic)


def readable_end(view: PartitionView, isolation_level: int) -> int:
    """The offset up to which a fetch of this isolation level may read."""
    if isolation_level != READ_COMMITTED:
        return view.high_watermark
    known_end = view.aborted_end_offset  # the plan does not list aborted transactions beyond it
    return view.last_stable_offset if known_end < 0 else min(view.last_stable_offset, known_end)


def readable_extents(each: RequestedPartition, isolation_level: int) -> list[Extent]:
    """The extents from the fetch's offset on; none if nothing is readable."""
    view = each.view
    if each.error or view is None or each.request.fetch_offset >= readable_end(view, isolation_level):
        return []
    return view.extents


def available_bytes(each: RequestedPartition, isolation_level: int) -> int:
    """How many bytes the partition has for this fetch.

    Whole extents count by their length; those read in part count by the offsets that are left.
    """
    extents, bytes_max = readable_extents(each, isolation_level), each.bytes_max
    if not extents or each.view is None:
        return 0
    view = each.view
    end_offset = view.last_stable_offset if isolation_level == READ_COMMITTED else view.high_watermark
    if extents[-1].last_offset + 1 < end_offset:  # there are more extents than were listed
        return bytes_max
    unread = sum(extent.length for extent in extents[1:-1])
    for extent in {extents[0].base_offset: extents[0], extents[-1].base_offset: extents[-1]}.values():
        unread += _bytes_between(extent, each.request.fetch_offset, end_offset)
    return min(bytes_max, max(unread, 1))


def _bytes_between(extent: Extent, offset: int, end_offset: int) -> int:
    """An estimate of the extent's bytes between two offsets."""
    first, end = max(extent.base_offset, offset), min(extent.last_offset + 1, end_offset)
    return extent.length * (end - first) // (extent.last_offset + 1 - extent.base_offset)
