"""Questions of compactors: segments, what they contain, and logs."""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Marker
from penstock.contracts.ids import SegmentId, TopicId


class SegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Segments in the order in which they were committed, from a row on; `levels` empty is all levels."""

    min_sequence: int
    first_row: int
    levels: list[int]
    limit: int
    dead: bool = False  # with those that no extent points to any more


class SegmentView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment as who compacts or audits sees it."""

    row: int  # its place in the order of commits, never given to another one
    segment_id: SegmentId
    level: int
    size_bytes: int
    live_bytes: int
    live_extents: int
    dead_since_ms: int  # the machine's clock when its last extent went, -1 if it is live
    leased: bool  # by a job whose lease is not over


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
