"""Compaction never changes the records that a reader sees: the same records at the same offsets, each once.

A small store models the bucket: its objects hold batches of single records at their byte positions. Writers commit
segments. Compactors plan with queries and copy the planned extents. They send their commands late, twice or never.
Meanwhile topics are created and deleted, and the state is read from snapshots. A reader plans and reads like a gateway.
"""

from random import Random

import msgspec
import pytest

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import (
    CommitSegment,
    DeleteTopic,
    OutputSegment,
    PerItem,
    ReplacedRun,
    ReplaceExtents,
    SegmentCommitted,
)
from penstock.contracts.ids import SegmentId, TopicId, new_segment_id
from penstock.contracts.queries.compaction import PlacedExtent, SegmentExtentsQuery, SegmentsQuery, SegmentView
from penstock.contracts.queries.log import PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from tests.unit.sequencer.core.core_world import START_MS, World, check_invariants, topic_id

Log = tuple[TopicId, int]
Record = tuple[int, int]  # offset in a compacted segment, or -1 in a flushed one; value
RECORD_BYTES = 10
PARTITIONS = 2
STEPS = 250
cleaning = pytest.mark.parametrize("keeps", [1.0, 0.6], ids=["merging", "cleaning"])


class Universe:
    """A state, a bucket, and the acknowledged records."""

    def __init__(self, seed: int, keeps: float) -> None:
        self.random = Random(seed)
        self.world = World()
        self.keeps = keeps  # the fraction of records that cleaning keeps; 1 for a merge
        self.bucket: dict[SegmentId, dict[int, Record]] = {}
        self.acknowledged: dict[Log, list[int]] = {}
        self.dropped: dict[Log, set[int]] = {}
        self.jobs: list[ReplaceExtents] = []
        self.topics = 0
        self.written = 0
        self.accepted = self.rejected = 0

    def step(self) -> None:
        ways = [self.write, self.plan, self.send, self.create, self.delete, self.restart, self.pass_time]
        (way,) = self.random.choices(ways, [40, 15, 25, 3, 1, 2, 6])
        way()

    def pass_time(self) -> None:
        self.world.wait(self.random.choice([10, 5_000, 400_000]))

    def create(self) -> None:
        if len(self.acknowledged) < 3 * PARTITIONS:
            self.topics += 1
            self.world.topic(f"t{self.topics}", PARTITIONS, self.topics)
            for partition in range(PARTITIONS):
                log = (topic_id(self.topics), partition)
                self.acknowledged[log], self.dropped[log] = [], set()

    def delete(self) -> None:
        if self.acknowledged:
            identifier = self.random.choice(list(self.acknowledged))[0]
            self.world.do(DeleteTopic(self.world.now_ms, "", identifier))
            for partition in range(PARTITIONS):
                del self.acknowledged[(identifier, partition)]

    def restart(self) -> None:
        self.world.state = decode_state(encode_state(self.world.state))

    def write(self) -> None:
        """Commit one segment with a few batches for some partitions."""
        random = self.random
        logs = random.sample(list(self.acknowledged), min(len(self.acknowledged), random.randint(1, 3)))
        content: dict[int, Record] = {}
        runs, position = [], 0
        for log in sorted(logs):
            metas, start = [], position
            for _ in range(random.randint(1, 3)):
                records = random.randint(1, 3)
                timestamp = START_MS + random.randint(0, 50)
                metas.append(BatchMeta(RECORD_BYTES * records, records, timestamp, -1, -1, -1, 0))
                for _ in range(records):
                    self.written += 1
                    content[position] = (-1, self.written)
                    position += RECORD_BYTES
            runs.append(BatchRun(*log, start, metas))
        identifier = self.put(content)
        outcome = self.world.do(CommitSegment(self.world.now_ms, identifier, position, "w", "z", runs))
        assert isinstance(outcome, SegmentCommitted)
        for run in runs:
            place = run.position
            for meta in run.batches:
                for _ in range(meta.record_count):
                    self.acknowledged[(run.topic_id, run.partition)].append(content[place][1])
                    place += RECORD_BYTES

    def put(self, content: dict[int, Record]) -> SegmentId:
        identifier = new_segment_id(self.world.now_ms, self.random.randbytes(10))
        self.bucket[identifier] = content
        return identifier

    def plan(self) -> None:
        """Plan a job over some live segments and write its output; it may be outdated when it is sent."""
        views = queries.segments(self.world.state, SegmentsQuery(0, 0, [], 1_000)).segments
        chosen = sorted(
            self.random.sample(views, min(len(views), self.random.randint(1, 12))), key=lambda each: each.row
        )
        listed = queries.segment_extents(self.world.state, SegmentExtentsQuery(0, [each.row for each in chosen]))
        logs: dict[Log, list[tuple[PlacedExtent, SegmentView]]] = {}
        for view, extents in zip(chosen, listed.extents, strict=True):
            for extent in extents:
                logs.setdefault((extent.topic_id, extent.partition), []).append((extent, view))
        places = {view.segment_id: place for place, view in enumerate(chosen)}
        content: dict[int, Record] = {}
        runs: list[ReplacedRun] = []
        for log in sorted(logs):
            for together in contiguous(logs[log]):
                runs.append(self.copy(log, together, places, content))
        size_bytes = RECORD_BYTES * len(content) + len(runs)
        output = OutputSegment(self.put(content), 1 + (self.keeps < 1), size_bytes)
        inputs = [view.segment_id for view in chosen]
        self.jobs.append(ReplaceExtents(self.world.now_ms, "j", inputs, [output], runs))

    def copy(
        self,
        log: Log,
        extents: list[tuple[PlacedExtent, SegmentView]],
        places: dict[SegmentId, int],
        content: dict[int, Record],
    ) -> ReplacedRun:
        """Copy the records of one run into the output; cleaning removes some, but every run has at least one byte."""
        position = max((*(place + RECORD_BYTES for place in content), 0))
        start = end = position
        named: list[int] = []
        for extent, view in extents:
            named += (places[view.segment_id], extent.position)
            for offset, record in read(self.bucket[view.segment_id], extent.base_offset, extent):
                if self.random.random() < self.keeps:
                    content[end] = (offset, record)
                    end += RECORD_BYTES
        newest = max(extent.max_timestamp for extent, _ in extents)
        ends = (extents[0][0].base_offset, extents[-1][0].last_offset)
        if end == start:
            content[end] = (ends[1], -1)  # a batch without records
            end += RECORD_BYTES
        return ReplacedRun(*log, *ends, named, 0, start, end - start, newest, self.keeps < 1)

    def send(self) -> None:
        if not self.jobs:
            return
        command = self.random.choice(self.jobs[-5:])
        before = {log: self.read(log) for log in self.acknowledged}
        outcome = self.world.do(msgspec.structs.replace(command, now_ms=self.world.now_ms))
        if isinstance(outcome, PerItem):
            self.accepted += outcome.rejections.count(Rejection.NONE)
            self.rejected += len(outcome.rejections) - outcome.rejections.count(Rejection.NONE)
        for log, seen in before.items():
            after = self.read(log)
            self.dropped[log] |= seen.keys() - after.keys()
            assert after.items() <= seen.items()
            assert self.keeps < 1 or after == seen

    def read(self, log: Log) -> dict[int, int]:
        """The records of the log by offset, in order; its extents must cover every offset once."""
        found: dict[int, int] = {}
        offset = 0
        while True:
            (plan,) = queries.plan(self.world.state, PlanQuery(0, [PlanPartition(*log, offset, 40)], 100)).partitions
            assert plan.rejection == Rejection.NONE
            if not plan.extents:
                assert offset == plan.high_watermark == len(self.acknowledged[log])
                return found
            assert plan.extents[0].base_offset == offset
            for extent in plan.extents:
                assert extent.base_offset == offset
                content = self.bucket[extent.segment.segment_id]
                for at, record in read(content, extent.base_offset, extent):
                    assert at not in found
                    found[at] = record
                offset = extent.last_offset + 1

    def check(self) -> None:
        """Every acknowledged record is read at its offset, except those that cleaning removed."""
        for log, records in self.acknowledged.items():
            found = self.read(log)
            assert list(found) == sorted(found)
            assert found.keys() | self.dropped[log] == set(range(len(records)))
            assert all(records[offset] == record for offset, record in found.items())


def read(content: dict[int, Record], base_offset: int, extent: object) -> list[Record]:
    """The records in an extent with their offsets; a flushed record gets its offset from the extent's first one."""
    position: int = extent.position  # type: ignore[attr-defined]
    end: int = position + extent.length  # type: ignore[attr-defined]
    found = []
    for number, place in enumerate(range(position, end, RECORD_BYTES)):
        offset, record = content[place]
        if record >= 0:
            found.append((base_offset + number if offset < 0 else offset, record))
    return found


def contiguous(
    extents: list[tuple[PlacedExtent, SegmentView]],
) -> list[list[tuple[PlacedExtent, SegmentView]]]:
    """The extents of one log, split where they are not contiguous."""
    fragments: list[list[tuple[PlacedExtent, SegmentView]]] = []
    for each in sorted(extents, key=lambda each: each[0].base_offset):
        if fragments and fragments[-1][-1][0].last_offset + 1 == each[0].base_offset:
            fragments[-1].append(each)
        else:
            fragments.append([each])
    return fragments


@cleaning
@pytest.mark.parametrize("seed", range(10))
def test_readers_see_every_record_once_and_in_order_during_any_compaction(seed: int, keeps: float) -> None:
    universe = Universe(seed, keeps)
    for _ in range(STEPS):
        universe.step()
        check_invariants(universe.world.state)
    universe.check()
    assert universe.accepted > 10
    assert universe.rejected > 0
