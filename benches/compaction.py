"""The cost of compaction for the state machine: its largest command, and its largest answers to compactors."""

import time
from collections.abc import Iterator

from benches.micro import NOW_MS, TOPIC_ID, best_s, commit_of, state_with_topic
from benches.report import Result
from penstock.contracts.commands import OutputSegment, PerItem, ReplacedRun, ReplaceExtents
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.queries.compaction import LogsQuery, SegmentExtentsQuery, SegmentsQuery
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS

PARTITIONS = 1_000
SEGMENTS = 1_000  # with an extent in each partition, so a million extents
RECORDS = 10  # of a batch, which is an extent
INPUTS = DEFAULT_LIMITS.maintenance.replaced_extents_max // PARTITIONS
JOBS = 5


def machine() -> Iterator[Result]:
    """In a state of 1,000,000 extents."""
    state = state_with_topic(PARTITIONS)
    for number in range(SEGMENTS):
        apply_entry(state, state.sequence + 1, [[commit_of(number, PARTITIONS, 1, -1)]], announce=False)
    rows = list(range(SEGMENTS))
    seconds = best_s(lambda: queries.segment_extents(state, SegmentExtentsQuery(0, rows)))
    yield Result("compaction", "answer with 5,000 extents of 5 segments", seconds * 1000, "ms", 20)
    listed = best_s(lambda: queries.segments(state, SegmentsQuery(0, 0, [], SEGMENTS)))
    yield Result("compaction", "1,000 segments listed", listed * 1000, "ms", 20)
    logs = best_s(lambda: queries.logs(state, LogsQuery(0, [TOPIC_ID])))
    yield Result("compaction", "answer with 1,000 logs of 1,000 extents each", logs * 1000, "ms", 20)
    for name, firsts in (
        ("oldest", [INPUTS * job for job in range(JOBS)]),
        ("newest", [SEGMENTS - INPUTS * (job + 1) for job in range(JOBS)]),
    ):
        seconds = min(_replace_s(state, first) for first in firsts)
        yield Result("compaction", f"20,000 {name} extents of 1,000 logs replaced", seconds * 1000, "ms", 50)


def _replace_s(state: State, first: int) -> float:
    """Seconds to replace the extents of the segments from `first` on."""
    command = _replacement(first)
    started_s = time.perf_counter()
    ((outcome,),), _ = apply_entry(state, state.sequence + 1, [[command]])
    seconds = time.perf_counter() - started_s
    assert isinstance(outcome, PerItem) and not any(outcome.rejections), "a run was rejected"
    return seconds


def _replacement(first: int) -> ReplaceExtents:
    runs = []
    base_offset, position, length = first * RECORDS, 64, INPUTS * 1000
    for partition in range(PARTITIONS):
        inputs = [number for place in range(INPUTS) for number in (place, 64 + partition * 1000)]
        last_offset = base_offset + INPUTS * RECORDS - 1
        runs.append(ReplacedRun(TOPIC_ID, partition, base_offset, last_offset, inputs, 0, position, length, NOW_MS))
        position += length
    segments = [_segment_id(first + place) for place in range(INPUTS)]
    output = OutputSegment(_segment_id(SEGMENTS + first), 1, position)
    return ReplaceExtents(NOW_MS, "job", segments, [output], runs)


def _segment_id(number: int) -> SegmentId:
    return new_segment_id(NOW_MS, number.to_bytes(10, "big"))
