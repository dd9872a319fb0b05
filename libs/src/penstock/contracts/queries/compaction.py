"""Queries of compactors: segments, their extents, and logs."""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Marker
from penstock.contracts.ids import SegmentId, TopicId


class SegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Segments in commit order, starting at a row; empty `levels` means all levels."""

    min_sequence: int
    first_row: int
    levels: list[int]
    limit: int
    dead: bool = False  # include dead segments


class SegmentView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment as a compactor or an audit sees it."""

    row: int  # the place in commit order, never used for another segment
    segment_id: SegmentId
    level: int
    size_bytes: int
    live_bytes: int
    live_extents: int
    dead_since_ms: int  # the state machine's clock when its last extent was removed, -1 if it is live
    leased: bool  # an active job lease names it


class SegmentsView(msgspec.Struct, frozen=True, array_like=True):
    """Some of the segments; the next answer starts at `next_row`, -1 at the end. A short answer may have a next one."""

    sequence: int
    clock_ms: int
    segments: list[SegmentView]
    next_row: int
    failure: str | None = None


class SegmentExtentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The live extents of the segments in these rows."""

    min_sequence: int
    rows: list[int]


class PlacedExtent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live extent of a segment that the query names."""

    topic_id: TopicId
    partition: int
    base_offset: int
    last_offset: int
    position: int
    length: int
    max_timestamp: int


class LogTransactions(msgspec.Struct, frozen=True, array_like=True):
    """The transactions of a log that matter to a compactor that rewrites a segment's extents of this log."""

    topic_id: TopicId
    partition: int
    decided_offset: int  # below it all transactions have ended and `aborted` is complete; it may be too low
    markers: list[Marker]  # directly after the extents
    aborted: list[AbortedTransaction]  # with records in the extents


class SegmentExtentsView(msgspec.Struct, frozen=True, array_like=True):
    """One list per segment, ordered by position, for the first rows of the query: at least one row, maybe not all.

    `transactions` has as many lists, with an item for each partition that has ever had a transaction. It is empty if
    the sequencer does not know them.
    """

    sequence: int
    extents: list[list[PlacedExtent]]
    failure: str | None = None
    transactions: list[list[LogTransactions]] = []


class LogsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The state of topics' logs, for the planning of key compaction."""

    min_sequence: int
    topic_ids: list[TopicId]


class LogView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition's log; records below `cleaned_offset` are clean, the others dirty."""

    topic_id: TopicId
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    cleaned_offset: int  # key compaction is done up to this offset
    delete_horizon_ms: int  # when the first clean tombstone may be removed, -1 without one
    clean_bytes: int
    dirty_bytes: int  # up to the last stable offset
    dirty_since_ms: int  # max timestamp of the first dirty extent, -1 without one


class LogsView(msgspec.Struct, frozen=True, array_like=True):
    """All partitions of those topics of the query that exist."""

    sequence: int
    clock_ms: int
    logs: list[LogView]
    failure: str | None = None
