"""Queries of janitors about segments: the dead ones, the known ones, and totals."""

from penstock.contracts.ids import SegmentId
from penstock.contracts.queries.janitor import (
    KNOWN_SEGMENTS_ASKED_MAX,
    DeadSegment,
    DeadSegmentsQuery,
    DeadSegmentsView,
    KnownSegment,
    KnownSegmentsQuery,
    KnownSegmentsView,
    UsageQuery,
    UsageView,
)
from penstock_sequencer.core.log.segment_queries import segment_view
from penstock_sequencer.core.maintenance.custody import secured_sequence
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.segments import NO_SLOT
from penstock_sequencer.core.topics.deletion import next_window_ms

_NEVER = -1


def dead(state: State, query: DeadSegmentsQuery) -> DeadSegmentsView:
    """The dead segments that died before the given time and entry, oldest first."""
    table = state.segments
    limit = min(max(query.limit, 1), state.limits.answers.dead_listed_max)
    found: list[DeadSegment] = []
    first = max(query.first_place, 0)
    walked = table.dead[first : first + state.limits.answers.dead_walked_max]
    next_place = first + len(walked) if first + len(walked) < len(table.dead) else _NEVER
    for place, slot in enumerate(walked, first):
        dead_since_ms, dead_sequence = table.dead_since_ms[slot], table.dead_sequences[slot]
        if dead_since_ms > query.before_ms or dead_sequence > query.before_sequence:
            next_place = _NEVER
            break
        if len(found) >= limit:
            next_place = place
            break
        segment_id = table.id(slot)
        if not _is_leased(state, segment_id):
            found.append(DeadSegment(segment_id, table.levels[slot], table.sizes[slot], dead_since_ms, dead_sequence))
    secured = secured_sequence(state)
    return DeadSegmentsView(state.sequence, state.clock_ms, secured, found, next_place=next_place)


def _is_leased(state: State, segment_id: SegmentId) -> bool:
    job_id = state.leased.get(segment_id)
    return job_id is not None and state.leases[job_id].until_ms > state.clock_ms


def known_segments(state: State, query: KnownSegmentsQuery) -> KnownSegmentsView:
    """The state of each segment, None if it is unknown.

    Too many ids are an error. So a janitor never takes an id that was left out for an unknown one.
    """
    count = len(query.segment_ids)
    failure = f"{count} ids are more than the {KNOWN_SEGMENTS_ASKED_MAX} of one query"
    is_too_much = count > KNOWN_SEGMENTS_ASKED_MAX
    found = [] if is_too_much else [_known(state, segment_id) for segment_id in query.segment_ids]
    secured = secured_sequence(state)
    return KnownSegmentsView(state.sequence, state.clock_ms, secured, found, failure if is_too_much else None)


def _known(state: State, segment_id: SegmentId) -> KnownSegment | None:
    is_remembered = segment_id in state.commits
    slot = state.segments.find(segment_id)
    if slot != NO_SLOT:
        view = segment_view(state, slot)
        return KnownSegment(view, is_remembered, state.segments.dead_sequences[slot])
    return KnownSegment(None, is_remembered) if is_remembered else None


def usage(state: State, query: UsageQuery) -> UsageView:
    """The totals of segments and extents, which the state keeps as running sums."""
    table = state.segments
    live_size_bytes = table.size_bytes_total - table.dead_size_bytes
    return UsageView(
        state.sequence,
        state.clock_ms,
        secured_sequence(state),
        len(table) - table.dead_count,
        table.live_bytes_total,
        live_size_bytes - table.live_bytes_total,
        table.dead_count,
        table.dead_size_bytes,
        table.dead_since_ms[table.dead[0]] if table.dead else _NEVER,
        state.extent_count,
        len(state.trimmed) + len(state.pending_delete),
        next_window_ms=next_window_ms(state),
    )
