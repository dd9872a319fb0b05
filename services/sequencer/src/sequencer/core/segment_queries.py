"""What those ask who compact or audit: segments, the extents in them, and how far key compaction of a log has come."""

from operator import attrgetter

from penstock.contracts.queries import (
    LogsQuery,
    LogsView,
    LogView,
    PlacedExtent,
    SegmentExtentsQuery,
    SegmentExtentsView,
    SegmentsQuery,
    SegmentsView,
    SegmentView,
)
from sequencer.core.contents import count_contents, live_extents
from sequencer.core.limits import (
    CONDEMNED_ROWS_WALKED_MAX,
    EXTENTS_LISTED_MAX,
    ROWS_WALKED_MAX,
    SEGMENTS_ASKED_MAX,
    SEGMENTS_LISTED_MAX,
)
from sequencer.core.partitions import last_stable_offset
from sequencer.core.segments import NOT_CONDEMNED
from sequencer.core.state import Partition, State

_NO_ROW = -1


def segments(state: State, query: SegmentsQuery) -> SegmentsView:
    """Segments from a row on; after a bounded walk the answer ends, and tells where to go on."""
    levels = frozenset(query.levels)
    limit = min(max(query.limit, 1), SEGMENTS_LISTED_MAX)
    end = len(state.segments)
    row = min(max(query.first_row, 0), end)
    last = min(row + CONDEMNED_ROWS_WALKED_MAX, end)
    found: list[SegmentView] = []
    for _ in range(ROWS_WALKED_MAX):
        if not query.condemned:
            row = _next_live(state, row, last)
        if row >= last or len(found) >= limit:
            break
        if not levels or state.segments.levels[row] in levels:
            found.append(_segment_view(state, row))
        row += 1
    return SegmentsView(state.sequence, state.clock_ms, found, row if row < end else _NO_ROW)


def _next_live(state: State, row: int, last: int) -> int:
    """The first row from `row` on that is not condemned, `last` if there is none before it."""
    try:
        return state.segments.condemned_ms.index(NOT_CONDEMNED, row, last)
    except ValueError:
        return last


def _segment_view(state: State, row: int) -> SegmentView:
    table = state.segments
    segment_id = table.id(row)
    job_id = state.claimed.get(segment_id)
    return SegmentView(
        row,
        segment_id,
        table.levels[row],
        table.sizes[row],
        table.live_bytes[row],
        table.live_extents[row],
        table.condemned_ms[row],
        job_id is not None and state.claims[job_id].until_ms > state.clock_ms,
    )


def segment_extents(state: State, query: SegmentExtentsQuery) -> SegmentExtentsView:
    """The live extents of the first of the segments, as many as fit an answer; none of what is no live segment."""
    found: list[list[PlacedExtent]] = []
    listed = 0
    for row in query.rows[:SEGMENTS_ASKED_MAX]:
        known = 0 <= row < len(state.segments)
        listed += count_contents(state.segments.contents[row]) if known else 0
        if found and listed > EXTENTS_LISTED_MAX:
            break
        found.append(_placed_extents(state, row) if known else [])
    return SegmentExtentsView(state.sequence, found)


def _placed_extents(state: State, row: int) -> list[PlacedExtent]:
    placed: list[PlacedExtent] = []
    for partition, place in live_extents(state, row):
        columns = partition.extents
        placed.append(
            PlacedExtent(
                partition.topic_id,
                partition.number,
                columns.base_offsets[place],
                columns.last_offsets[place],
                columns.positions[place],
                columns.lengths[place],
                columns.timestamps[place],
            )
        )
    placed.sort(key=attrgetter("position"))
    return placed


def logs(state: State, query: LogsQuery) -> LogsView:
    """How each partition of the topics stands."""
    topics = [state.topics_by_id[topic_id] for topic_id in query.topic_ids if topic_id in state.topics_by_id]
    found = [_log_view(partition) for topic in topics for partition in topic.partitions]
    return LogsView(state.sequence, state.clock_ms, found)


def _log_view(partition: Partition) -> LogView:
    columns = partition.extents
    cleaned_offset = max(partition.cleaned_offset, partition.log_start_offset)
    # An extent that is clean in part only, as after a merge, is dirty.
    first_dirty = columns.find_offset(cleaned_offset)
    first_unstable = columns.find_offset(last_stable_offset(partition))
    return LogView(
        partition.topic_id,
        partition.number,
        partition.log_start_offset,
        last_stable_offset(partition),
        partition.high_watermark,
        cleaned_offset,
        partition.delete_horizon_ms,
        sum(columns.lengths[columns.head : first_dirty]),
        sum(columns.lengths[first_dirty:first_unstable]),
        columns.timestamps[first_dirty] if first_dirty < first_unstable else -1,
    )
