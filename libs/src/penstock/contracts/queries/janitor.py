"""Queries of janitors, custodians and operators: overdue logs, dead and known segments, usage, the journal."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import SegmentView

KNOWN_SEGMENTS_ASKED_MAX = 2_000  # per query: about 20 ms, and twice the size of one page of a store's listing


class RetentionQuery(msgspec.Struct, frozen=True, array_like=True):
    """Logs that hold too many bytes, or records that are too old by both `now_ms` and the state machine's clock."""

    min_sequence: int
    now_ms: int  # the caller's clock
    first_topic: int = 0  # the first topic to look at, in the order of the state


class OverdueLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A log with extents beyond its retention, counted up to a limit. With none, it must start inside its first."""

    topic_id: TopicId
    partition: int
    extents: int
    overdue_bytes: int
    overdue_ms: int  # for how long the oldest one is overdue; 0 if only the size is over its limit


class RetentionView(msgspec.Struct, frozen=True, array_like=True):
    """Overdue logs, topic by topic; at most as many as one command may name.

    When these are done, the janitor continues at `next_topic`. If topics are deleted in between, it skips some topics
    until the next query that starts at topic 0.
    """

    sequence: int
    clock_ms: int
    logs: list[OverdueLog]
    failure: str | None = None
    next_topic: int = -1  # -1: there are no more


class DeadSegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Segments that died at or before a time of the state machine's clock, and at or before a journal sequence.

    Segments with an active job lease are left out.
    """

    min_sequence: int
    before_ms: int
    before_sequence: int
    limit: int
    fresh: bool = False
    first_place: int = 0  # in the queue of dead segments; places move up when segments are removed


class DeadSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A dead segment: no extent points to it."""

    segment_id: SegmentId
    level: int
    size_bytes: int
    dead_since_ms: int
    dead_sequence: int  # the entry that removed its last extent


class DeadSegmentsView(msgspec.Struct, frozen=True, array_like=True):
    """Dead segments, in the order in which they died."""

    sequence: int
    clock_ms: int
    secured_sequence: int  # any rebuild of the journal contains all entries up to this one
    segments: list[DeadSegment]
    failure: str | None = None
    next_place: int = -1  # where the next query starts; -1: there are no more


class KnownSegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The journal's knowledge of segments, by their ids; at most KNOWN_SEGMENTS_ASKED_MAX ids."""

    min_sequence: int
    segment_ids: list[SegmentId]
    fresh: bool = False


class KnownSegment(msgspec.Struct, frozen=True, array_like=True):
    """A known segment; without `view` it was removed, and `remembered`: a retry of its commit still gets an answer."""

    view: SegmentView | None
    remembered: bool
    dead_sequence: int = 0


class KnownSegmentsView(msgspec.Struct, frozen=True, array_like=True):
    """One item per id, in the query's order; None if no entry knows the segment."""

    sequence: int
    clock_ms: int
    secured_sequence: int
    segments: list[KnownSegment | None]
    failure: str | None = None


class UsageQuery(msgspec.Struct, frozen=True, array_like=True):
    """The sizes of everything that the journal knows."""

    min_sequence: int


class UsageView(msgspec.Struct, frozen=True, array_like=True):
    """Counts and bytes of the objects that the journal knows, by their state."""

    sequence: int
    clock_ms: int
    secured_sequence: int
    segments: int  # live segments
    live_bytes: int  # bytes of live segments that extents point to
    dead_bytes: int  # other bytes of live segments
    dead_segments: int
    dead_segment_bytes: int
    dead_since_ms: int  # when the oldest dead segment died, -1 without one
    extents: int
    waiting_logs: int  # logs with extents to remove
    failure: str | None = None
    next_window_ms: int = 2**63 - 1  # the end of the first undelete window of the recoverable topics


class JournalQuery(msgspec.Struct, frozen=True, array_like=True):
    """The identity of the journal's stream."""

    min_sequence: int


class JournalView(msgspec.Struct, frozen=True, array_like=True):
    """The text of the marker in the object store that names the journal's stream, unchanged (ADR 0004)."""

    sequence: int
    stream: str
    created: str
    failure: str | None = None
