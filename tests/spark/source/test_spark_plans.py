"""Plans of a read while compaction changes the segments, and with wrong times from producers."""

from typing import Any

import pytest

from penstock.contracts.batches import BatchMeta, BatchRun, Extent, SegmentRef
from penstock.contracts.commands import Command, CommitSegment, CreateTopic, OutputSegment, ReplacedRun, ReplaceExtents
from penstock.contracts.ids import new_segment_id
from penstock.contracts.queries.log import OffsetFound
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.records import Record, build_batch
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import segment_key
from penstock.spark.source.catalog import Catalog
from penstock.spark.source.config import read_source_config
from penstock.spark.source.offsets import LogBounds
from penstock.spark.source.planning import Planner
from penstock.spark.source.splits import Wanted, plan_splits
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.spark

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes([1]) * 16


class Machine:
    """A state machine that answers queries as a sequencer; the commands `between` run after the first answer."""

    def __init__(self) -> None:
        self.state = new_state()
        self.between: list[Command] = []

    def do(self, command: Command) -> Any:
        return apply_entry(self.state, self.state.sequence + 1, [[command]])[0][0][0]

    async def query(self, name: str, query: Any, view: type) -> Any:
        answer = queries.QUERIES[name](self.state, query)
        while self.between:
            self.do(self.between.pop(0))
        return answer


async def test_an_extent_merged_across_two_answers_of_a_plan_is_read_once() -> None:
    machine = Machine()
    machine.do(CreateTopic(NOW_MS, "t", TOPIC_ID, 1, {}))
    count = DEFAULT_LIMITS.answers.plan_extents_max + 10
    ids = [new_segment_id(NOW_MS, number.to_bytes(10, "big")) for number in range(count)]
    for segment_id in ids:
        batches = [BatchMeta(100, 1, 5, -1, -1, -1, 0)]
        machine.do(CommitSegment(NOW_MS, segment_id, 1000, "f", "z", [BatchRun(TOPIC_ID, 0, 100, batches)]))
    first, last = DEFAULT_LIMITS.answers.plan_extents_max - 5, DEFAULT_LIMITS.answers.plan_extents_max + 4
    inputs = [number for place in range(last - first + 1) for number in (place, 100)]
    output = OutputSegment(new_segment_id(NOW_MS, b"\xff" * 10), 1, 5000)
    run = ReplacedRun(TOPIC_ID, 0, first, last, inputs, 0, 100, 1000, 5)
    machine.between = [ReplaceExtents(NOW_MS, "job", ids[first : last + 1], [output], [run])]

    found = await Catalog(machine).extents([Wanted("t", TOPIC_ID, 0, 0, count, [])])  # type: ignore[arg-type]
    assert any(extent.segment.level == 1 for extent in found[0].extents)
    splits = plan_splits(found, "c", 2**40)
    runs = [run for split in splits for stretch in split.stretches for run in stretch.runs]
    read = [offset for each in runs for offset in range(each.from_offset, each.to_offset)]
    assert read == list(range(count))


class LyingCatalog(Catalog):
    """A catalog with one extent whose largest timestamp is later than all its records."""

    def __init__(self, extent: Extent) -> None:
        self._extent = extent

    async def offsets_at(self, wanted: Any) -> list[OffsetFound]:
        return [OffsetFound(Rejection.NONE, -1, self._extent, 1) for _ in wanted]


async def test_a_wrong_time_in_a_header_makes_a_read_begin_early_and_end_late() -> None:
    data = build_batch([Record(0, 1000), Record(1, 1001)])
    segment = SegmentRef(TOPIC_ID, 0, 1000, "", "")
    store = MemoryStore("lies", now_ms=lambda: 0)
    await store.put(segment_key("", "default", 0, TOPIC_ID), [data])
    # The header of the batch selects the extent; here its largest timestamp is 1001.
    planner = Planner(
        read_source_config({"topics": "t", "nats": "nats://x", "store": "memory://lies"}, environ={}),
        LyingCatalog(Extent(10, 11, segment, 0, len(data), 9999)),
        store,
    )
    topics = {"t": TopicView("t", TOPIC_ID, 1, {}, 1)}
    bounds = {("t", 0): LogBounds(0, 50)}
    assert await planner.offsets_at(topics, bounds, 5000, is_start=True) == {("t", 0): 10}
    assert await planner.offsets_at(topics, bounds, 5000, is_start=False) == {("t", 0): 50}
    assert await planner.offsets_at(topics, bounds, 1001, is_start=True) == {("t", 0): 11}
