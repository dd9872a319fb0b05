"""Queries of compactors and audits: segments, their extents, and how far key compaction of each log has come."""

from collections.abc import Sequence
from operator import attrgetter

from penstock.contracts.batches import Marker
from penstock.contracts.queries.compaction import (
    LogsQuery,
    LogsView,
    LogTransactions,
    LogView,
    PlacedExtent,
    SegmentExtentsQuery,
    SegmentExtentsView,
    SegmentsQuery,
    SegmentsView,
    SegmentView,
)
from penstock_sequencer.core.log.control_markers import is_marker, markers_among
from penstock_sequencer.core.log.partitions import last_stable_offset
from penstock_sequencer.core.log.segment_contents import count_contents, live_extents
from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.limits import AnswerLimits
from penstock_sequencer.core.state.segments import MARKERS, NO_SLOT

_NO_ROW = -1


def segments(state: State, query: SegmentsQuery) -> SegmentsView:
    """Segments from a number on; after a bounded walk the answer ends, and names the number to continue with."""
    table, limits = state.segments, state.limits.answers
    levels = frozenset(query.levels)
    limit = min(max(query.limit, 1), limits.segments_listed_max)
    place = table.place_of_number(query.first_row)
    walked = table.by_number[place : place + limits.dead_rows_walked_max]
    wanted = walked if query.dead else filter(table.live_extents.__getitem__, walked)
    found: list[SegmentView] = []
    next_slot = NO_SLOT
    for seen, slot in enumerate(wanted):
        if seen >= limits.rows_walked_max or len(found) >= limit:
            next_slot = slot
            break
        if not levels or table.levels[slot] in levels:
            found.append(segment_view(state, slot))
    else:
        end = place + len(walked)
        next_slot = table.by_number[end] if end < len(table) else NO_SLOT
    next_row = _NO_ROW if next_slot == NO_SLOT else table.numbers[next_slot]
    return SegmentsView(state.sequence, state.clock_ms, found, next_row)


def segment_view(state: State, slot: int) -> SegmentView:
    """The segment as other services see it."""
    table = state.segments
    segment_id = table.id(slot)
    job_id = state.leased.get(segment_id)
    return SegmentView(
        table.numbers[slot],
        segment_id,
        table.levels[slot],
        table.sizes[slot],
        table.live_bytes[slot],
        table.live_extents[slot],
        table.dead_since_ms[slot],
        job_id is not None and state.leases[job_id].until_ms > state.clock_ms,
    )


def segment_extents(state: State, query: SegmentExtentsQuery) -> SegmentExtentsView:
    """The live extents of the first segments, as many as fit into one answer.

    The list of a number that belongs to no live segment is empty.
    """
    table, limits = state.segments, state.limits.answers
    found: list[list[PlacedExtent]] = []
    transactions: list[list[LogTransactions]] = []
    listed = 0
    for number in query.rows[: limits.segments_asked_max]:
        slot = table.find_number(number)
        listed += count_contents(table.contents[slot]) if slot != NO_SLOT else 0
        if found and listed > limits.extents_listed_max:
            break
        rows = list(live_extents(state, slot)) if slot != NO_SLOT else []
        found.append(sorted((_placed_extent(*row) for row in rows), key=attrgetter("position")))
        of_segment = _transactions_among(rows, limits)
        listed += sum(len(each.markers) + len(each.aborted) for each in of_segment)
        transactions.append(of_segment)
    return SegmentExtentsView(state.sequence, found, transactions=transactions)


def _placed_extent(partition: Partition, row: int) -> PlacedExtent:
    columns = partition.extents
    return PlacedExtent(
        partition.topic_id,
        partition.number,
        columns.base_offsets[row],
        columns.last_offsets[row],
        columns.positions[row],
        columns.lengths[row],
        columns.timestamps[row],
    )


def _transactions_among(extents: Sequence[tuple[Partition, int]], limits: AnswerLimits) -> list[LogTransactions]:
    """The transactions of the partitions that these rows belong to, except partitions that never had any."""
    rows: dict[int, list[int]] = {}
    partitions: dict[int, Partition] = {}
    for partition, row in extents:
        if partition.transactions is not None:
            partitions[partition.index] = partition
            rows.setdefault(partition.index, []).append(row)
    found: list[LogTransactions] = []
    aborted_left, markers_left = limits.plan_aborted_max, limits.extents_listed_max
    for index, partition in partitions.items():
        each = _log_transactions(partition, sorted(rows[index]), aborted_left, markers_left)
        aborted_left -= len(each.aborted)
        markers_left -= len(each.markers)
        found.append(each)
    return found


def _log_transactions(partition: Partition, rows: list[int], aborted_max: int, markers_max: int) -> LogTransactions:
    columns, transactions = partition.extents, partition.transactions
    assert transactions is not None, "the partition has had transactions"
    markers: list[Marker] = []
    for row in rows:
        stop = row + 1
        while stop < columns.end and is_marker(partition, stop) and len(markers) + stop - row <= markers_max:
            stop += 1
        markers += markers_among(partition, row + 1, stop)
    first_offset, end_offset = columns.base_offsets[rows[0]], columns.last_offsets[rows[-1]] + 1
    aborted, known_offset = transactions.aborted(first_offset, end_offset, aborted_max)
    stable_offset = last_stable_offset(partition)
    decided_offset = stable_offset if known_offset == end_offset else min(known_offset, stable_offset)
    return LogTransactions(partition.topic_id, partition.number, decided_offset, markers, aborted)


def logs(state: State, query: LogsQuery) -> LogsView:
    """The offsets of each partition of the topics, and its clean and dirty bytes."""
    topics = [state.topics_by_id[topic_id] for topic_id in query.topic_ids if topic_id in state.topics_by_id]
    found = [_log_view(partition) for topic in topics for partition in topic.partitions]
    return LogsView(state.sequence, state.clock_ms, found)


def _dirty_since_ms(partition: Partition, first: int, stop: int) -> int:
    """The max timestamp of the first stored extent among these; -1 if none is stored."""
    columns = partition.extents
    return next((columns.timestamps[row] for row in range(first, stop) if columns.segments[row] != MARKERS), -1)


def _log_view(partition: Partition) -> LogView:
    columns = partition.extents
    first = columns.find_offset(partition.log_start_offset)
    cleaned_offset = max(partition.cleaned_offset, partition.log_start_offset)
    # An extent that is only partly clean, for example after a merge, counts as dirty.
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
        sum(columns.lengths[first:first_dirty]),
        sum(columns.lengths[first_dirty:first_unstable]),
        _dirty_since_ms(partition, first_dirty, first_unstable),
    )
