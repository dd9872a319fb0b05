"""Reads of the state: each names the lowest journal sequence it must reflect, each answer the one it does.

Where a client may have been told of something by another gateway, that is not enough: `fresh` asks for an answer that
also reflects all that the journal held when the question came (ADR 0009).
"""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Extent, Marker
from penstock.contracts.commands import Command, Outcome
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.refusals import Refusal

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class MetadataQuery(msgspec.Struct, frozen=True, array_like=True):
    """Topics by name and by id; `names` None is all topics."""

    min_sequence: int
    names: list[str] | None
    topic_ids: list[TopicId] = []
    fresh: bool = False


class TopicView(msgspec.Struct, frozen=True, array_like=True):
    """A topic; `configs` holds what was set, not the defaults."""

    name: str
    topic_id: TopicId
    partitions: int
    configs: dict[str, str]
    leader_epoch: int


class MetadataView(msgspec.Struct, frozen=True, array_like=True):
    """The topics that exist of those asked for."""

    sequence: int
    topics: list[TopicView]
    failure: str | None = None


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
    refusal: Refusal
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

    refusal: Refusal
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


class GroupTopicPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


class GroupOffsetsQuery(msgspec.Struct, frozen=True, array_like=True):
    """A group's committed offsets; `topics` None is all that it has."""

    min_sequence: int
    group_id: str
    topics: list[GroupTopicPartitions] | None
    fresh: bool = False
    member_id: str | None = None  # of a consumer group, who asks for itself (KIP-848)
    member_epoch: int = -1


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """`offset` -1 where nothing was committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    pending: bool = False  # an ongoing transaction may commit another one


class GroupOffsetsView(msgspec.Struct, frozen=True, array_like=True):
    """Offsets in the query's order."""

    sequence: int
    offsets: list[CommittedOffset]
    failure: str | None = None
    refusal: Refusal = Refusal.NONE  # why a member that asks for itself is not told


class GroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """All groups; empty `states` means every state."""

    min_sequence: int
    states: list[str]
    fresh: bool = False


class GroupSummary(msgspec.Struct, frozen=True, array_like=True):
    """A group in a listing; `state` in Kafka's words: Empty, Stable, PreparingRebalance, Assigning, ..."""

    group_id: str
    protocol_type: str
    state: str
    is_consumer: bool = False  # a group of the consumer protocol, no classic one
    is_share: bool = False


class GroupsView(msgspec.Struct, frozen=True, array_like=True):
    """Every group that was asked for."""

    sequence: int
    groups: list[GroupSummary]
    failure: str | None = None


class DescribeGroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Groups by id."""

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False


class MemberView(msgspec.Struct, frozen=True, array_like=True):
    """A member as an administrator sees it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupView(msgspec.Struct, frozen=True, array_like=True):
    """A group as an administrator sees it; state "Dead" where there is none of that id."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberView]


class DescribeGroupsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per id, in the query's order."""

    sequence: int
    groups: list[GroupView]
    failure: str | None = None


class HeartbeatQuery(msgspec.Struct, frozen=True, array_like=True):
    """A member says that it lives; never journaled."""

    min_sequence: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class HeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """Whether the member may go on."""

    sequence: int
    refusal: Refusal
    failure: str | None = None


class GroupWaitQuery(msgspec.Struct, frozen=True, array_like=True):
    """Wait for what a `Waiting` outcome promised, `wait_ms` at most; `kind` is "join" or "sync"."""

    min_sequence: int
    kind: str
    group_id: str
    member_id: str
    generation: int
    wait_ms: int


class GroupWaitView(msgspec.Struct, frozen=True, array_like=True):
    """The answer: Joined, Synced or Refused; or Waiting again, when the time is over."""

    sequence: int
    outcome: Outcome
    failure: str | None = None


class ValidateQuery(msgspec.Struct, frozen=True, array_like=True):
    """What commands would be answered, each on its own, without doing them (CreateTopic and CreatePartitions only)."""

    min_sequence: int
    commands: list[Command]
    fresh: bool = False


class ValidateView(msgspec.Struct, frozen=True, array_like=True):
    """One outcome per command."""

    sequence: int
    outcomes: list[Outcome]
    failure: str | None = None


class SegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Segments in the order in which they were committed, from a row on; `levels` empty is all levels."""

    min_sequence: int
    first_row: int
    levels: list[int]
    limit: int
    condemned: bool = False  # with those that no extent points to any more


class SegmentView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment as who compacts or audits sees it."""

    row: int  # its place in the order of commits, never given to another one
    segment_id: SegmentId
    level: int
    size_bytes: int
    live_bytes: int
    live_extents: int
    condemned_ms: int  # the machine's clock when its last extent went, -1 if it is live
    claimed: bool  # by a job whose lease is not over


class SegmentsView(msgspec.Struct, frozen=True, array_like=True):
    """Segments; there may be more from `next_row` on, unless that is -1. An answer may be short and not be the last."""

    sequence: int
    clock_ms: int
    segments: list[SegmentView]
    next_row: int
    failure: str | None = None


class SegmentExtentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The live extents of segments, by their rows."""

    min_sequence: int
    rows: list[int]


class PlacedExtent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live extent of a segment that is known already."""

    topic_id: TopicId
    partition: int
    base_offset: int
    last_offset: int
    position: int
    length: int
    max_timestamp: int


class LogTransactions(msgspec.Struct, frozen=True, array_like=True):
    """What of a log's transactions matters to who rewrites a segment's extents of it."""

    topic_id: TopicId
    partition: int
    decided_offset: int  # below it nothing is undecided, and `aborted` has all that there are; it may be told too low
    markers: list[Marker]  # right behind the extents
    aborted: list[AbortedTransaction]  # with records in the extents


class SegmentExtentsView(msgspec.Struct, frozen=True, array_like=True):
    """One list per segment, by position, for the first of the rows that were asked for: at least one, maybe not all.

    `transactions` has as many lists, of the segment's partitions that have ever had one; none where nobody knows them.
    """

    sequence: int
    extents: list[list[PlacedExtent]]
    failure: str | None = None
    transactions: list[list[LogTransactions]] = []


class LogsQuery(msgspec.Struct, frozen=True, array_like=True):
    """How the logs of topics stand, as key compaction plans by it."""

    min_sequence: int
    topic_ids: list[TopicId]


class LogView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition's log; "clean" is what lies below `cleaned_offset`."""

    topic_id: TopicId
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    cleaned_offset: int  # up to here key compaction is done
    delete_horizon_ms: int  # when the first tombstone below it may go, -1 without one
    clean_bytes: int
    dirty_bytes: int  # up to the last stable offset
    dirty_since_ms: int  # max timestamp of the first dirty extent, -1 without one


class LogsView(msgspec.Struct, frozen=True, array_like=True):
    """Every partition of the topics that exist."""

    sequence: int
    clock_ms: int
    logs: list[LogView]
    failure: str | None = None
