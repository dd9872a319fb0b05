"""Questions of janitors, custodians and operators: what is overdue, dead, known and used."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import SegmentView

KNOWN_SEGMENTS_ASKED_MAX = 2_000  # of one question: about 20 ms, and twice what one page of a store's listing holds


class RetentionQuery(msgspec.Struct, frozen=True, array_like=True):
    """Which logs hold what is too old, by the asker's clock and the machine's, or too much."""

    min_sequence: int
    now_ms: int
    first_topic: int = 0  # where to begin among all topics, in the order in which the state has them


class OverdueLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A log of which something should be gone; the extents are counted up to a limit."""

    topic_id: TopicId
    partition: int
    extents: int
    overdue_bytes: int
    overdue_ms: int  # since when the oldest of them should be gone; 0 where it is the size


class RetentionView(msgspec.Struct, frozen=True, array_like=True):
    """The logs where there is something to do, topic by topic; never more than one command may name.

    Once these are done, go on at `next_topic`. If topics are deleted meanwhile others are passed over, till the next
    time that somebody asks from the beginning.
    """

    sequence: int
    clock_ms: int
    logs: list[OverdueLog]
    failure: str | None = None
    next_topic: int = -1  # -1: all were looked at


class DeadSegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Segments condemned at or before a time, by the machine's clock, and at or before a journal sequence.

    Those that somebody has claimed are passed over.
    """

    min_sequence: int
    before_ms: int
    before_sequence: int
    limit: int
    fresh: bool = False
    first_place: int = 0  # in the queue of those that are condemned; places move up when others are forgotten


class DeadSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment that no extent points to any more."""

    segment_id: SegmentId
    level: int
    size_bytes: int
    dead_since_ms: int
    dead_sequence: int  # the entry that took its last extent


class DeadSegmentsView(msgspec.Struct, frozen=True, array_like=True):
    """In the order in which they were condemned."""

    sequence: int
    clock_ms: int
    secured_sequence: int  # whatever a journal is made anew from, all entries up to this one count in it
    segments: list[DeadSegment]
    failure: str | None = None
    next_place: int = -1  # where to go on; -1: there are no more


class KnownSegmentsQuery(msgspec.Struct, frozen=True, array_like=True):
    """What the journal knows of segments, by their ids: KNOWN_SEGMENTS_ASKED_MAX of them at most."""

    min_sequence: int
    segment_ids: list[SegmentId]
    fresh: bool = False


class KnownSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment that is known; `remembered` without a view: forgotten, but its commit would still be answered."""

    view: SegmentView | None
    remembered: bool
    dead_sequence: int = 0


class KnownSegmentsView(msgspec.Struct, frozen=True, array_like=True):
    """One per id, in the query's order; None where no entry knows it."""

    sequence: int
    clock_ms: int
    secured_sequence: int
    segments: list[KnownSegment | None]
    failure: str | None = None


class UsageQuery(msgspec.Struct, frozen=True, array_like=True):
    """How much there is."""

    min_sequence: int


class UsageView(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of objects that the journal knows, by what they are."""

    sequence: int
    clock_ms: int
    secured_sequence: int
    segments: int  # live ones
    live_bytes: int  # of them, that extents point to
    dead_bytes: int  # the rest of them
    dead_segments: int
    dead_segment_bytes: int
    dead_since_ms: int  # when the first of those that are left was condemned, -1 without one
    extents: int
    waiting_logs: int  # that have extents to be dropped
    failure: str | None = None
    next_window_ms: int = 2**63 - 1  # when the first deleted topic that can still come back may be let go of for good


class JournalQuery(msgspec.Struct, frozen=True, array_like=True):
    """Which stream is the journal."""

    min_sequence: int


class JournalView(msgspec.Struct, frozen=True, array_like=True):
    """What the marker in the journal's own object store says, word for word (ADR 0004)."""

    sequence: int
    stream: str
    created: str
    failure: str | None = None
