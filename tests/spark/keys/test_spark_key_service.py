"""The compactor finds and runs key compaction itself, beside merging, and the sequencers record it."""

import os
import threading
from pathlib import Path

import pytest

import penstock_compactor.keys.job  # noqa: F401  a first import takes seconds, and must not count in a test's waits
from penstock.contracts.commands import CommitSegment, RaiseLevel
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.compaction import LogsQuery, LogView
from penstock.kafkawire.records import Record, build_batch
from penstock.segment import build_segment
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges
from penstock_compactor.app import CompactorLimits
from penstock_compactor.keys.limits import KeyWorkLimits
from penstock_compactor.keys.plan import KeyLimits
from penstock_compactor.planning.planner import PlanLimits
from penstock_sequencer.core.log import segment_queries
from tests.testkit.waiting import until
from tests.unit.compactor.compactor_lake import CLUSTER, meta
from tests.unit.compactor.compactor_world import World, while_running

pytestmark = pytest.mark.spark

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
LIMITS = PlanLimits(flushed_count=3, flushed_rest_ms=0, class_count=100, topic_bytes_min=1, local_bytes_max=0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, LIMITS)
    world.machine.apply(RaiseLevel(world.machine.clock.now_ms(), NEWEST_LEVEL))
    return world


def flush(world: World, topic_id: TopicId, *keys: str, partition: int = 0) -> bytes:
    """Store one segment with a batch of these keys; returns its id."""
    now_ms = world.machine.clock.now_ms()
    segment_id = new_segment_id(now_ms, os.urandom(10))
    data = build_batch([Record(number, now_ms, key.encode(), key.encode()) for number, key in enumerate(keys)])
    batches = [(topic_id, partition, meta(data), data)]
    built = build_segment(segment_id, writer="f", created_ms=now_ms, level=0, batches=batches)
    with StoreRanges(world.place.url) as ranges:
        ranges.call(lambda store: store.put(segment_key("", CLUSTER, 0, segment_id), built.buffers))
    world.machine.apply(CommitSegment(now_ms, segment_id, built.size_bytes, "f", "z1", built.runs))
    return segment_id


def log(world: World, topic_id: TopicId) -> LogView:
    return segment_queries.logs(world.machine.state, LogsQuery(0, [topic_id])).logs[0]


async def test_merged_segments_are_compacted_by_key(world: World) -> None:
    world.key_limits = KeyLimits(dirty_bytes_min=0)
    topic_id = world.create_topic(1, **COMPACTED)
    plain_id = world.create_topic(2)
    for number in range(3):
        flush(world, topic_id, "a", f"b{number}")
        flush(world, plain_id, "a")
    done = {"kind": "keys", "result": "done"}
    await while_running([world.compactor()], lambda: until(lambda: world.metric("jobs_total", **done) == 1))
    assert world.read(topic_id, 0) == [(1, "b0"), (3, "b1"), (4, "a"), (5, "b2")]
    assert [offset for offset, _ in world.read(plain_id, 0)] == [0, 1, 2]
    assert [extent.segment.level for extent in world.extents(topic_id, 0)] == [2]
    assert (log(world, topic_id).dirty_bytes, log(world, topic_id).cleaned_offset) == (0, 6)
    assert not world.machine.state.leases


async def test_two_compactors_share_key_compaction(world: World) -> None:
    topics = [world.create_topic(number, **COMPACTED) for number in range(1, 7)]
    for _ in range(2):
        for topic_id in topics:
            flush(world, topic_id, "a", "b")
    compactors = [world.compactor("compactor-1"), world.compactor("compactor-2")]

    def is_done() -> bool:
        return all(log(world, topic_id).cleaned_offset == 4 for topic_id in topics)

    await while_running(compactors, lambda: until(is_done))
    for topic_id in topics:
        assert world.read(topic_id, 0) == [(2, "a"), (3, "b")]
    assert world.metric("runs_total", result="none") >= 6


async def test_key_compaction_continues_with_later_records(world: World) -> None:
    topic_id = world.create_topic(1, **COMPACTED)

    async def work() -> None:
        for number in range(1, 5):
            flush(world, topic_id, "a", "b", "a")
            await until(lambda end=3 * number: log(world, topic_id).cleaned_offset == end)  # type: ignore[misc]

    await while_running([world.compactor()], work)
    assert world.read(topic_id, 0) == [(10, "b"), (11, "a")]
    assert log(world, topic_id).delete_horizon_ms == -1


async def test_a_damaged_log_is_reported_and_the_others_are_compacted(world: World) -> None:
    damaged, good = (world.create_topic(number, **COMPACTED) for number in (1, 2))
    world.damage(flush(world, damaged, "a", "a"))
    flush(world, good, "a", "a")

    def is_reported() -> bool:
        return log(world, good).cleaned_offset == 2 and world.metric("task_failures_total", kind="Corrupt") > 0

    await while_running([world.compactor()], lambda: until(is_reported))
    assert log(world, damaged).cleaned_offset == 0


async def test_a_job_that_exceeds_its_deadline_ends_and_is_retried_later(world: World) -> None:
    topic_id = world.create_topic(1, **COMPACTED)
    flush(world, topic_id, "a", "a")
    is_cancelled = threading.Event()

    def hang() -> None:
        assert is_cancelled.wait(30)
        raise ConnectionError("cancelled")

    world.spark.before_collect = hang
    world.spark.on_cancel = is_cancelled.set
    world.limits = CompactorLimits(keys=KeyWorkLimits(job_deadline_s=0.05))
    failed = {"kind": "keys", "result": "failed"}
    await while_running([world.compactor()], lambda: until(lambda: world.metric("jobs_total", **failed) == 1))
    assert log(world, topic_id).cleaned_offset == 0
    assert not world.machine.state.leases


async def test_while_more_jobs_wait_there_is_no_pause(world: World) -> None:
    world.key_interval_s = 3_600
    topics = [world.create_topic(number, **COMPACTED) for number in range(1, 4)]
    for topic_id in topics:
        flush(world, topic_id, "a", "a")

    def is_done() -> bool:
        return all(log(world, topic_id).cleaned_offset == 2 for topic_id in topics)

    await while_running([world.compactor()], lambda: until(is_done))
