"""The segments that may be merged, as the sequencers reported them."""

from collections.abc import Collection, Sequence

from penstock.contracts.ids import SegmentId
from penstock.contracts.queries.compaction import SegmentsView, SegmentView
from penstock_compactor.planning.planner import FLUSHED

FULL_INTERVAL_S = 300.0  # between two reads of the whole table, which find segments that partial reads missed


class Listing:
    """A copy of the table of segments: call `begin`, then `record` each view from `next_row` on, until that is -1.

    New segments are added at the end of the table. So most reads begin at the oldest flushed segment. If another
    compactor merges segments before it, they stay here until the next read of the whole table. A job for them finds no
    work.
    """

    def __init__(self, full_bytes: int) -> None:
        self._full_bytes = full_bytes
        self._segments: dict[int, SegmentView] = {}
        self._end_row = 0  # after all rows seen
        self._full_s: float | None = None
        self.clock_ms = 0

    @property
    def segments(self) -> Sequence[SegmentView]:
        """The segments in the order of the table."""
        return [self._segments[row] for row in sorted(self._segments)]

    def begin(self, now_s: float) -> int:
        """The first row of the next query."""
        if self._full_s is None or now_s - self._full_s >= FULL_INTERVAL_S:
            self._full_s = now_s
            return 0
        return min((row for row, each in self._segments.items() if each.level == FLUSHED), default=self._end_row)

    def record(self, first_row: int, view: SegmentsView) -> int:
        """Record the answer to a query from `first_row` on; returns the row of the next query, -1 at the end."""
        self.clock_ms = max(self.clock_ms, view.clock_ms)
        for row in [row for row in self._segments if row >= first_row and (view.next_row < 0 or row < view.next_row)]:
            del self._segments[row]
        for segment in view.segments:
            if segment.dead_since_ms < 0 and (segment.level == FLUSHED or segment.live_bytes < self._full_bytes):
                self._segments[segment.row] = segment
        seen_row = max((segment.row + 1 for segment in view.segments), default=0)
        self._end_row = max(self._end_row, seen_row, view.next_row)
        return view.next_row

    def remove(self, segment_ids: Collection[SegmentId]) -> None:
        """Remove segments that a job has changed."""
        for row in [row for row, each in self._segments.items() if each.segment_id in segment_ids]:
            del self._segments[row]
