"""Queries about logs: plans of extents to read, offsets by timestamp, sizes."""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Extent, Marker
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class PlanPartition(msgspec.Struct, frozen=True, array_like=True):
    """One partition of a fetch: the offset, and the largest number of bytes."""

    topic_id: TopicId
    partition: int
    offset: int
    bytes_max: int


class PlanQuery(msgspec.Struct, frozen=True, array_like=True):
    """The extents to read for several partitions, up to a byte budget."""

    min_sequence: int
    partitions: list[PlanPartition]
    bytes_max: int


class PartitionPlan(msgspec.Struct, frozen=True, array_like=True):
    """Ordered extents, the first of which holds the offset; none at the high watermark or with a rejection."""

    topic_id: TopicId
    partition: int
    rejection: Rejection
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    extents: list[Extent]
    markers: list[Marker] = []  # one for each extent that is a marker
    # Ordered by last offset: transactions with records from the offset on and below `aborted_end_offset`, which may lie
    # before the last extent's end. -1: there are none.
    aborted: list[AbortedTransaction] = []
    aborted_end_offset: int = -1


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """One plan per partition, in the query's order."""

    sequence: int
    partitions: list[PartitionPlan]
    failure: str | None = None


class OffsetOf(msgspec.Struct, frozen=True, array_like=True):
    """A `timestamp` in ms since 1970, or LATEST, EARLIEST, MAX_TIMESTAMP; the search starts at `from_offset`."""

    topic_id: TopicId
    partition: int
    timestamp: int
    from_offset: int = 0


class OffsetsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of timestamps in logs."""

    min_sequence: int
    partitions: list[OffsetOf]
    fresh: bool = False


class OffsetFound(msgspec.Struct, frozen=True, array_like=True):
    """`offset` for a special timestamp (-1: none); for a real one the extent to search, None after the last record.

    Records of the extent below `log_start_offset` are deleted.
    """

    rejection: Rejection
    offset: int
    extent: Extent | None
    leader_epoch: int
    log_start_offset: int = 0
    last_stable_offset: int = -1  # -1: not given


class OffsetsView(msgspec.Struct, frozen=True, array_like=True):
    """One answer per partition, in the query's order."""

    sequence: int
    partitions: list[OffsetFound]
    failure: str | None = None


class LogSizesQuery(msgspec.Struct, frozen=True, array_like=True):
    """The sizes of topics' logs; `names` None means all topics. `after` as in `MetadataQuery`."""

    min_sequence: int
    names: list[str] | None
    fresh: bool = False
    after: str | None = None


class LogSizes(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of a topic's live extents, one number per partition."""

    name: str
    size_bytes: list[int]


class LogSizesView(msgspec.Struct, frozen=True, array_like=True):
    """Those topics of the query that exist."""

    sequence: int
    topics: list[LogSizes]
    failure: str | None = None
    is_more: bool = False  # there are more after the last of these
