"""Questions about logs: what to read from an offset on, offsets by time, sizes."""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Extent, Marker
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class PlanPartition(msgspec.Struct, frozen=True, array_like=True):
    """What one partition of a fetch wants."""

    topic_id: TopicId
    partition: int
    offset: int
    bytes_max: int


class PlanQuery(msgspec.Struct, frozen=True, array_like=True):
    """The extents to read, for several partitions at once, up to a byte budget."""

    min_sequence: int
    partitions: list[PlanPartition]
    bytes_max: int


class PartitionPlan(msgspec.Struct, frozen=True, array_like=True):
    """Ordered extents from the one that holds the offset on; none at the high watermark or with a refusal."""

    topic_id: TopicId
    partition: int
    rejection: Rejection
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    extents: list[Extent]
    markers: list[Marker] = []  # of the extents that are such
    aborted: list[AbortedTransaction] = []  # by their last offsets: who has records from the offset on ...
    aborted_end_offset: int = (
        -1
    )  # ... and below this one, which may lie before the last extent's end; -1: there are none


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """One plan per partition asked for, in the query's order."""

    sequence: int
    partitions: list[PartitionPlan]
    failure: str | None = None


class OffsetOf(msgspec.Struct, frozen=True, array_like=True):
    """`timestamp` in ms since 1970, or LATEST, EARLIEST, MAX_TIMESTAMP; times are looked for from `from_offset` on."""

    topic_id: TopicId
    partition: int
    timestamp: int
    from_offset: int = 0


class OffsetsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Where in the log a time is."""

    min_sequence: int
    partitions: list[OffsetOf]
    fresh: bool = False


class OffsetFound(msgspec.Struct, frozen=True, array_like=True):
    """`offset` for the special timestamps (-1: none); for a real one the extent to look into, or None past the last.

    Records of the extent that lie below `log_start_offset` are gone.
    """

    rejection: Rejection
    offset: int
    extent: Extent | None
    leader_epoch: int
    log_start_offset: int = 0
    last_stable_offset: int = -1  # what is decided lies below it; -1: not told


class OffsetsView(msgspec.Struct, frozen=True, array_like=True):
    """One answer per partition, in the query's order."""

    sequence: int
    partitions: list[OffsetFound]
    failure: str | None = None


class LogSizesQuery(msgspec.Struct, frozen=True, array_like=True):
    """How much the logs of topics hold; `names` None is all topics."""

    min_sequence: int
    names: list[str] | None
    fresh: bool = False


class LogSizes(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of a topic's live extents, partition by partition."""

    name: str
    size_bytes: list[int]


class LogSizesView(msgspec.Struct, frozen=True, array_like=True):
    """The topics that exist of those asked for."""

    sequence: int
    topics: list[LogSizes]
    failure: str | None = None
