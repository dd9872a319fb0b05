"""Retention and DeleteRecords drop extents from the front of a log, a bounded number with each command."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    LOGS_PER_COMMAND_MAX,
    TO_HIGH_WATERMARK,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DeleteTopic,
    DropExtents,
    ExpireLogs,
    ExtentsDropped,
    LogOffset,
    LogRef,
    LogsTrimmed,
    LogTrimmed,
    RaiseLevel,
    Tick,
)
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.messages import PartitionAdvance
from penstock.contracts.queries.log import (
    EARLIEST,
    MAX_TIMESTAMP,
    OffsetFound,
    OffsetOf,
    OffsetsQuery,
    PlanPartition,
    PlanQuery,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, LogLimits
from penstock_sequencer.core.state.segments import NOT_DEAD
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    return world


def expire(world: World, *logs: tuple[int, int]) -> LogsTrimmed:
    """Logs as (topic number, partition)."""
    wanted = [LogRef(topic_id(number), partition) for number, partition in logs or [(1, 0)]]
    outcome: LogsTrimmed = world.do(ExpireLogs(world.now_ms, wanted))
    return outcome


def delete(world: World, *logs: tuple[int, int, int]) -> LogsTrimmed:
    """Logs as (topic number, partition, offset)."""
    wanted = [LogOffset(topic_id(number), partition, offset) for number, partition, offset in logs]
    outcome: LogsTrimmed = world.do(DeleteRecords(world.now_ms, wanted))
    return outcome


def limit(world: World, extents: int) -> None:
    world.use_limits(Limits(log=LogLimits(extents_dropped_per_command_max=extents)))


def kept(world: World, number: int = 1, partition: int = 0) -> list[int]:
    return [first for first, _, _ in world.extents(number, partition)]


def advances(world: World) -> list[PartitionAdvance]:
    assert world.effects is not None
    return world.effects.partitions


def offset_of(world: World, timestamp: int, from_offset: int = 0) -> OffsetFound:
    (found,) = queries.offsets(
        world.state, OffsetsQuery(0, [OffsetOf(topic_id(1), 0, timestamp, from_offset)])
    ).partitions
    return found


def test_extents_older_than_their_topics_retention_are_dropped_and_the_log_starts_after_them(world: World) -> None:
    world.topic(**{"retention.ms": str(HOUR_MS)})
    for age_ms in (30, 20, 10):
        world.produce(batch(10, 100, START_MS - age_ms))
    world.wait(HOUR_MS - 20)  # the second extent is as old as it may be
    assert expire(world) == LogsTrimmed([LogTrimmed(Rejection.NONE, 10, 1, 100)], False)
    assert kept(world) == [10, 20]
    world.wait(1)
    assert expire(world) == LogsTrimmed([LogTrimmed(Rejection.NONE, 20, 1, 100)], False)
    assert expire(world) == LogsTrimmed([LogTrimmed(Rejection.NONE, 20, 0, 0)], False)


def test_an_old_extent_stays_after_one_that_stays(world: World) -> None:
    world.topic(**{"retention.ms": str(HOUR_MS)})
    world.produce(batch(1, 100, START_MS + 1))
    world.produce(batch(1, 100, START_MS - HOUR_MS))
    world.wait(HOUR_MS)
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 0, 0, 0)]


def test_no_extent_is_dropped_early_by_a_wrong_clock_of_the_client(world: World) -> None:
    """A time from the past moves nothing, nor does the time of a broken clock.

    Replicas journal no command with a time ahead of their own clock.
    """
    world.topic(**{"retention.ms": str(HOUR_MS)})
    world.produce(batch())
    world.wait(HOUR_MS)
    for now_ms in (0, world.now_ms - HOUR_MS, 2**60):
        outcome: Any = world.do(ExpireLogs(now_ms, [LogRef(topic_id(1), 0)]))
        assert outcome.logs == [LogTrimmed(Rejection.NONE, 0, 0, 0)]


def test_no_extent_is_dropped_early_by_a_sequencer_whose_clock_is_days_ahead(world: World) -> None:
    """The machine's clock stays at that time for ever; the janitor that sends the command has the right time."""
    world.topic(**{"retention.ms": str(HOUR_MS)})
    world.produce(batch())
    world.do(Tick(world.now_ms + 8 * 24 * HOUR_MS))
    world.now_ms += HOUR_MS
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 0, 0, 0)]
    world.now_ms += 1
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 1, 1, 100)]


def test_the_log_keeps_the_bytes_of_its_topics_retention_and_no_extent_more(world: World) -> None:
    world.topic(**{"retention.bytes": "250"})
    for _ in range(3):
        world.produce(batch(10, 100))
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 0, 0, 0)]
    world.produce(batch(10, 50))
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 10, 1, 100)]
    assert world.partition().size_bytes == 250


def test_with_zero_bytes_to_keep_the_log_starts_at_its_end(world: World) -> None:
    world.topic(**{"retention.bytes": "0"})
    world.produce(batch(10, 100), batch(5, 50))
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 15, 1, 150)]
    assert world.produce(batch())[0].log_start_offset == 15


def test_the_clusters_default_applies_to_a_topic_without_its_own(world: World) -> None:
    world.topic()
    world.topic("u", number=2, **{"retention.ms": "-1"})
    for number in (1, 2):
        world.produce(batch(), number=number)
    world.wait(2 * HOUR_MS)
    assert [each.extents for each in expire(world, (1, 0), (2, 0)).logs] == [0, 0]
    world.do(AlterConfigs(world.now_ms, "", [ConfigChange("log.retention.ms", ConfigOperation.SET, str(HOUR_MS))]))
    assert [each.extents for each in expire(world, (1, 0), (2, 0)).logs] == [1, 0]


def test_kafkas_seven_days_apply_when_no_retention_is_set(world: World) -> None:
    world.topic()
    world.produce(batch())
    world.wait(7 * 24 * HOUR_MS)
    assert expire(world).logs[0].extents == 0
    world.wait(1)
    assert expire(world).logs[0].extents == 1


def test_records_without_a_time_are_as_old_as_their_segment(world: World) -> None:
    world.topic(**{"retention.ms": str(HOUR_MS)})
    world.produce(batch(1, 100, -1))
    world.wait(HOUR_MS)
    assert expire(world).logs[0].extents == 0
    world.wait(1)
    assert expire(world).logs[0].extents == 1


def test_records_of_a_topic_that_is_only_compacted_neither_expire_nor_are_deleted(world: World) -> None:
    world.topic(**{"cleanup.policy": "compact", "retention.bytes": "0"})
    world.produce(batch())
    assert expire(world).logs == [LogTrimmed(Rejection.NONE, 0, 0, 0)]
    assert delete(world, (1, 0, 1)).logs == [LogTrimmed(Rejection.POLICY_VIOLATION)]
    world.topic("u", number=2, **{"cleanup.policy": "compact,delete", "retention.bytes": "0"})
    world.produce(batch(), number=2)
    assert expire(world, (2, 0)).logs[0].extents == 1


def test_a_command_drops_a_bounded_number_of_extents_and_reports_whether_there_are_more(world: World) -> None:
    limit(world, 3)
    world.topic(partitions=3, **{"retention.bytes": "0"})
    for partition in (0, 0, 1, 1, 2):
        world.produce(batch(), partition=partition)
    logs = [(1, 0), (1, 1), (1, 2)]
    first = expire(world, *logs)
    assert ([each.extents for each in first.logs], first.is_more) == ([2, 1, 0], True)
    second = expire(world, *logs)
    assert ([each.extents for each in second.logs], second.is_more) == ([0, 1, 1], False)


def test_there_is_no_more_to_do_when_the_last_allowed_drop_is_the_last_extent(world: World) -> None:
    limit(world, 2)
    world.topic(partitions=2, **{"retention.bytes": "0"})
    world.produce(batch())
    world.produce(batch())
    assert not expire(world, (1, 0), (1, 1)).is_more


def test_deleting_records_moves_the_start_of_the_log_at_once_also_into_an_extent(world: World) -> None:
    world.topic()
    for _ in range(3):
        world.produce(batch(10, 100))
    assert delete(world, (1, 0, 15)) == LogsTrimmed([LogTrimmed(Rejection.NONE, 15, 1, 100)], False)
    assert kept(world) == [10, 20]
    assert delete(world, (1, 0, 15)).logs == [LogTrimmed(Rejection.NONE, 15, 0, 0)]
    assert delete(world, (1, 0, 4)).logs == [LogTrimmed(Rejection.NONE, 15, 0, 0)]  # the start never goes back
    assert delete(world, (1, 0, TO_HIGH_WATERMARK)).logs == [LogTrimmed(Rejection.NONE, 30, 2, 200)]
    assert world.state.extent_count == 0


@pytest.mark.parametrize(
    ("log", "rejection"),
    [
        ((1, 0, 11), Rejection.OFFSET_OUT_OF_RANGE),
        ((1, 0, -2), Rejection.OFFSET_OUT_OF_RANGE),
        ((1, 1, 0), Rejection.UNKNOWN_TOPIC),
        ((2, 0, 0), Rejection.UNKNOWN_TOPIC),
    ],
)
def test_records_that_do_not_exist_are_not_deleted(
    world: World, log: tuple[int, int, int], rejection: Rejection
) -> None:
    world.topic()
    world.produce(batch(10, 100))
    assert delete(world, log, (1, 0, 10)).logs == [LogTrimmed(rejection), LogTrimmed(Rejection.NONE, 10, 1, 100)]


def test_more_logs_than_a_command_may_name_are_rejected_as_a_whole(world: World) -> None:
    world.topic(**{"retention.bytes": "0"})
    world.produce(batch())
    rejected: Any = expire(world, *[(1, 0)] * (LOGS_PER_COMMAND_MAX + 1))
    assert rejected.rejection == Rejection.INVALID_REQUEST
    rejected = delete(world, *[(1, 0, 1)] * (LOGS_PER_COMMAND_MAX + 1))
    assert rejected.rejection == Rejection.INVALID_REQUEST
    assert kept(world) == [0]


def test_extents_before_the_start_are_dropped_step_by_step_and_not_read_until_then(world: World) -> None:
    limit(world, 2)
    world.topic()
    for number in range(8):
        world.produce(batch(10, 100, START_MS - number))
    deleted = delete(world, (1, 0, 75))
    assert deleted == LogsTrimmed([LogTrimmed(Rejection.NONE, 75, 2, 200)], True)
    assert kept(world)[0] == 20
    assert offset_of(world, EARLIEST).offset == 75
    by_time, latest = offset_of(world, 0), offset_of(world, MAX_TIMESTAMP)
    assert by_time.extent is not None and latest.extent is not None
    assert (by_time.extent.base_offset, by_time.log_start_offset) == (70, 75)
    assert (latest.extent.base_offset, latest.log_start_offset) == (70, 75)
    (plan,) = queries.plan(world.state, PlanQuery(0, [PlanPartition(topic_id(1), 0, 74, 10_000)], 10_000)).partitions
    assert (plan.rejection, plan.log_start_offset, plan.extents) == (Rejection.OFFSET_OUT_OF_RANGE, 75, [])
    assert world.do(DropExtents(world.now_ms)) == ExtentsDropped(2, 200, True)
    world.wait(1)
    assert kept(world) == [60, 70]
    assert world.do(DropExtents(world.now_ms)) == ExtentsDropped(1, 100, False)
    assert world.do(DropExtents(world.now_ms)) == ExtentsDropped(0, 0, False)


def test_a_search_by_time_begins_at_the_given_offset(world: World) -> None:
    world.topic()
    for number in range(3):
        world.produce(batch(10, 100, START_MS - number))
    found = [offset_of(world, START_MS - 5, from_offset).extent for from_offset in (0, 9, 10, 29, 30)]
    assert [None if each is None else each.base_offset for each in found] == [0, 0, 10, 20, None]
    latest = [offset_of(world, MAX_TIMESTAMP, from_offset).extent for from_offset in (0, 10, 30)]
    assert [None if each is None else each.base_offset for each in latest] == [0, 10, None]


def test_a_log_that_waits_to_be_trimmed_is_trimmed_before_more_of_it_expires(world: World) -> None:
    limit(world, 1)
    world.topic(**{"retention.bytes": "100"})
    for _ in range(4):
        world.produce(batch(10, 100))
    delete(world, (1, 0, 20))
    assert kept(world) == [10, 20, 30]
    assert expire(world) == LogsTrimmed([LogTrimmed(Rejection.NONE, 20, 1, 100)], True)
    assert expire(world) == LogsTrimmed([LogTrimmed(Rejection.NONE, 30, 1, 100)], False)


def test_a_new_start_is_announced_without_a_write(world: World) -> None:
    world.topic()
    world.produce(batch(10, 100))
    delete(world, (1, 0, 4))
    assert advances(world) == [PartitionAdvance(topic_id(1), 0, 4, 10, 10, [])]
    delete(world, (1, 0, 4))
    assert advances(world) == []
    world.do(AlterConfigs(world.now_ms, "t", [ConfigChange("retention.bytes", ConfigOperation.SET, "0")]))
    expire(world)
    assert advances(world) == [PartitionAdvance(topic_id(1), 0, 10, 10, 10, [])]


def test_a_write_and_a_trim_in_one_entry_are_announced_together(world: World) -> None:
    world.topic()
    world.produce(batch(10, 100))
    commits = [world.segment_command((1, 0, [batch(10, 100)])) for _ in range(2)]
    world.entry([*commits, DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 25)])])
    (advance,) = advances(world)
    assert (advance.log_start_offset, advance.high_watermark) == (25, 30)
    assert [each.base_offset for each in advance.extents] == [20]


def test_a_segment_is_dead_when_its_last_extent_is_dropped(world: World) -> None:
    world.topic(partitions=2, **{"retention.bytes": "0"})
    world.do(world.segment_command((1, 0, [batch()]), (1, 1, [batch()])))
    expire(world, (1, 0))
    assert world.state.segments.dead_since_ms[0] == NOT_DEAD
    expire(world, (1, 1))
    assert world.state.segments.dead_since_ms[0] == world.now_ms
    assert world.state.segments.dead_sequences[0] == world.state.sequence


def test_a_topic_that_is_deleted_while_it_is_trimmed_is_dropped_as_a_whole(world: World) -> None:
    limit(world, 1)
    world.topic(partitions=2)
    world.topic("u", number=2)
    for number, partition in ((1, 0), (1, 0), (1, 0), (1, 1), (2, 0), (2, 0), (2, 0)):
        world.produce(batch(10, 100), number=number, partition=partition)
    delete(world, (1, 0, 25), (2, 0, 25))
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    steps = 0
    while world.do(DropExtents(world.now_ms)).is_more:
        steps += 1
        assert steps < 10
    assert kept(world, 2) == [20]
    assert world.state.extent_count == 1


def test_large_topics_are_dropped_few_extents_at_a_time_from_the_janitors_level_on() -> None:
    for level, left in ((JANITOR_LEVEL - 1, 0), (JANITOR_LEVEL, 500)):
        world = World()
        world.do(RaiseLevel(world.now_ms, level))
        world.topic(partitions=DEFAULT_LIMITS.log.extents_dropped_per_command_max + 500)
        runs = [
            (1, partition, [batch()]) for partition in range(DEFAULT_LIMITS.log.extents_dropped_per_command_max + 500)
        ]
        world.do(world.segment_command(*runs))
        world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
        assert world.state.extent_count == left
