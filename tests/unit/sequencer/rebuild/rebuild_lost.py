"""Helpers for tests: segments whose commits are lost, and their recovery by a rebuild."""

from typing import Any

from penstock.contracts.batches import BatchMeta
from penstock.contracts.commands import CommitSegment
from penstock.contracts.ids import segment_born_ms
from penstock.segment import SegmentIndex
from penstock_sequencer.core.state.cluster import Partition
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from penstock_sequencer.rebuild.recover import commit_lost_segments
from penstock_sequencer.rebuild.report import Report, as_json, as_text
from tests.unit.sequencer.core.core_world import World, check_invariants, topic_id
from tests.unit.sequencer.rebuild.rebuild_segments import BORN_MS, segment

T1 = topic_id(1)


def recover(
    built: World, *segments: SegmentIndex, now_ms: int = BORN_MS + 10 * DEFAULT_LIMITS.log.segment_commit_age_max_ms
) -> Report:
    report = Report(cluster="c")
    commit_lost_segments(built.state, list(segments), now_ms, report)
    check_invariants(built.state)
    assert as_text(report)
    assert as_json(report)
    return report


def of(writer: str, born_ms: int, *batches: BatchMeta, chance: int = 0, topic: bytes = T1) -> SegmentIndex:
    return segment(writer, born_ms, chance=chance, runs=[(topic, 0, list(batches))])


def partition(built: World, number: int = 0, name: str = "t") -> Partition:
    return built.state.topics[name].partitions[number]


def commit_of(built: World, index: SegmentIndex) -> Any:
    """The machine's answer when the flusher sends the segment's commit, perhaps again."""
    born_ms = segment_born_ms(index.segment_id)
    return built.do(CommitSegment(born_ms, index.segment_id, index.size_bytes, index.writer, "z1", index.runs))
