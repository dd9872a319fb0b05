"""A deleted topic can come back as it was during its undelete window, and not later."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    DeleteGroup,
    DeleteRecords,
    DeleteTopic,
    Done,
    DropExtents,
    ExpireLogs,
    LogOffset,
    LogRef,
    RaiseLevel,
    Tick,
    TopicCreated,
    UndeleteTopic,
)
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.janitor import UsageQuery
from penstock.contracts.queries.topics import DeletedTopicsQuery, DeletedTopicView, MetadataQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.log import retention_queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.maintenance import queries as janitor_queries
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import Partition
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, GroupLimits, Limits, LogLimits, TopicLimits
from penstock_sequencer.core.state.segments import NOT_DEAD
from tests.unit.sequencer.core.core_world import World, batch, topic_id

WINDOW_MS = 1_000
WINDOW = {"penstock.undelete.window.ms": str(WINDOW_MS)}


@pytest.fixture
def world() -> World:
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    return world


def delete(world: World, name: str = "t") -> Any:
    return world.do(DeleteTopic(world.now_ms, name, NO_TOPIC_ID))


def undelete(world: World, name: str = "t", number: int = 0) -> Any:
    return world.do(UndeleteTopic(world.now_ms, name, topic_id(number) if number else NO_TOPIC_ID))


def end_windows(world: World) -> Any:
    """End the windows that are over, like a janitor with a correct clock."""
    return world.do(DropExtents(world.now_ms))


def deleted(world: World) -> list[DeletedTopicView]:
    return retention_queries.deleted_topics(world.state, DeletedTopicsQuery(0)).topics


def test_a_topic_comes_back_with_its_records_producers_and_committed_offsets(world: World) -> None:
    world.topic(partitions=2, **WINDOW)
    producer = world.producer()
    world.produce(batch(10, 100, producer=producer, epoch=0, sequence=0))
    world.commit_offset(7, metadata="said")
    topic, committed = world.state.topics["t"], world.group().offsets["t"]
    assert delete(world) == Done()
    assert queries.metadata(world.state, MetadataQuery(0, None)).topics == []
    assert world.produce(batch())[0].rejection == Rejection.UNKNOWN_TOPIC
    assert world.group().offsets == {}
    world.wait(WINDOW_MS - 1)
    assert undelete(world) == TopicCreated(topic_id(1), 2, WINDOW)
    assert world.effects is not None
    assert world.effects.topics == ["t"]
    assert world.state.topics["t"] is topic
    assert world.group().offsets == {"t": committed}
    assert world.produce(batch(5, 50, producer=producer, epoch=0, sequence=10))[0].base_offset == 10
    assert world.state.deleted_topics == {}


def test_after_its_window_a_topic_cannot_come_back(world: World) -> None:
    world.topic(**WINDOW)
    world.produce(batch())
    world.commit_offset()
    delete(world)
    assert world.state.segments.dead_since_ms[0] == NOT_DEAD
    world.wait(WINDOW_MS - 1)
    end_windows(world)
    assert len(deleted(world)) == 1
    world.wait(1)
    assert not end_windows(world).is_more
    assert undelete(world).rejection == Rejection.UNKNOWN_TOPIC
    assert (world.state.extent_count, world.state.partition_count, world.state.group_bytes) == (0, 0, 0)
    assert world.state.segments.dead_since_ms[0] == world.now_ms
    assert world.state.partitions_by_index == {}


def test_a_window_ends_by_the_machines_clock_and_a_janitors(world: World) -> None:
    """One clock alone never ends a window, even if it was ahead once. Time alone does not end it either."""
    world.topic(**WINDOW)
    delete(world)
    world.do(Tick(world.now_ms + 8 * WINDOW_MS))
    assert not end_windows(world).is_more
    assert len(deleted(world)) == 1
    assert isinstance(undelete(world), TopicCreated)
    world.now_ms = world.state.clock_ms
    delete(world)
    world.wait(WINDOW_MS - 1)
    usage = janitor_queries.usage(world.state, UsageQuery(0))
    assert usage.next_window_ms == world.now_ms + 1
    world.now_ms += 1
    end_windows(world)
    assert deleted(world) == []
    assert janitor_queries.usage(world.state, UsageQuery(0)).next_window_ms == 2**63 - 1


def test_a_topic_without_a_window_is_deleted_at_once(world: World) -> None:
    world.topic()
    world.produce(batch())
    delete(world)
    assert world.state.extent_count == 0
    assert undelete(world).rejection == Rejection.UNKNOWN_TOPIC


def test_the_clusters_window_applies_to_topics_without_their_own(world: World) -> None:
    change = ConfigChange("penstock.undelete.window.ms", ConfigOperation.SET, str(WINDOW_MS))
    world.do(AlterConfigs(world.now_ms, "", [change]))
    world.topic("t", number=1)
    world.topic("u", number=2, **{"penstock.undelete.window.ms": "0"})
    delete(world, "t")
    delete(world, "u")
    assert [each.name for each in deleted(world)] == ["t"]


def test_a_recoverable_topic_is_not_written_read_expired_or_grown(world: World) -> None:
    world.topic(**WINDOW, **{"retention.bytes": "0"})
    world.produce(batch())
    delete(world)
    expired: Any = world.do(ExpireLogs(world.now_ms, [LogRef(topic_id(1), 0)]))
    assert expired.logs[0].rejection == Rejection.UNKNOWN_TOPIC
    trimmed: Any = world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 1)]))
    assert trimmed.logs[0].rejection == Rejection.UNKNOWN_TOPIC
    assert world.do(CreatePartitions(world.now_ms, "t", 5)).rejection == Rejection.UNKNOWN_TOPIC
    assert world.commit_offset().rejections == [Rejection.UNKNOWN_TOPIC]
    assert world.state.extent_count == 1


def test_the_name_can_be_used_and_the_topic_comes_back_when_it_is_free_again(world: World) -> None:
    world.topic("a.b", number=1, **WINDOW)
    delete(world, "a.b")
    assert world.topic("a.b", number=1).rejection == Rejection.INVALID_REQUEST  # the id is not free
    assert isinstance(world.topic("a.b", number=2), TopicCreated)
    assert undelete(world, "a.b").rejection == Rejection.TOPIC_EXISTS
    delete(world, "a.b")
    assert isinstance(world.topic("a_b", number=3), TopicCreated)
    assert undelete(world, "a.b").rejection == Rejection.INVALID_TOPIC
    delete(world, "a_b")
    assert undelete(world, "a.b").topic_id == topic_id(1)


def test_of_several_topics_with_one_name_the_last_comes_back_or_the_one_with_the_id(world: World) -> None:
    for number in (1, 2, 3):
        world.topic("t", number=number, **WINDOW)
        delete(world)
    assert [each.topic_id for each in deleted(world)] == [topic_id(1), topic_id(2), topic_id(3)]
    assert undelete(world).topic_id == topic_id(3)
    delete(world)
    assert undelete(world, number=1).topic_id == topic_id(1)
    delete(world)
    assert undelete(world, "other", number=2).rejection == Rejection.UNKNOWN_TOPIC
    assert undelete(world, "", number=2).topic_id == topic_id(2)


def test_repeated_commands_have_the_same_outcomes(world: World) -> None:
    world.topic(**WINDOW)
    by_id = DeleteTopic(world.now_ms, "", topic_id(1))
    assert world.do(by_id) == world.do(by_id) == Done()
    assert len(deleted(world)) == 1
    assert undelete(world, number=1) == undelete(world, number=1) == TopicCreated(topic_id(1), 1, WINDOW)


def test_a_late_command_does_not_restore_a_topic_that_was_deleted_again(world: World) -> None:
    world.topic(**WINDOW)
    delete(world)
    command = UndeleteTopic(world.now_ms, "t", topic_id(1), world.state.sequence)
    assert isinstance(world.do(command), TopicCreated)
    delete(world)
    restored = World()
    restored.state, restored.now_ms = decode_state(encode_state(world.state), world.state.limits), world.now_ms
    for each in (world, restored):
        assert each.do(command).rejection == Rejection.STALE
        assert len(deleted(each)) == 1
        assert isinstance(each.do(msgspec.structs.replace(command, seen_sequence=each.state.sequence)), TopicCreated)


def test_the_id_of_a_recoverable_topic_cannot_be_used(world: World) -> None:
    world.topic(**{"penstock.undelete.window.ms": str(3 * DEFAULT_LIMITS.topics.deleted_topic_memory_ms)})
    delete(world)
    world.wait(2 * DEFAULT_LIMITS.topics.deleted_topic_memory_ms)
    assert world.state.deleted_topics == {}
    assert world.topic("other", number=1).rejection == Rejection.INVALID_REQUEST
    assert world.do(DeleteTopic(world.now_ms, "", topic_id(1))) == Done()


def test_recoverable_topics_are_listed_with_the_end_of_their_windows(world: World) -> None:
    world.topic(partitions=2, **WINDOW)
    world.produce(batch(10, 100), partition=1)
    delete(world)
    told = DeletedTopicView("t", topic_id(1), 2, 100, world.now_ms, world.now_ms + WINDOW_MS)
    assert deleted(world) == [told]
    undelete(world)
    assert deleted(world) == []


def test_compaction_of_a_recoverable_topic_continues(world: World) -> None:
    world.topic(**WINDOW)
    world.produce(batch(10, 100))
    world.produce(batch(10, 100))
    job = world.job((1, 0, 0, 2))
    delete(world)
    assert world.do(job).rejections == [Rejection.NONE]
    undelete(world)
    assert world.extents() == [(0, 19, 1)]


def test_trimming_of_a_recoverable_topic_continues(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(extents_dropped_per_command_max=1)))
    world.topic(**WINDOW)
    for _ in range(3):
        world.produce(batch(10, 100))
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 25)]))
    delete(world)
    assert not world.do(DropExtents(world.now_ms)).is_more
    undelete(world)
    assert world.extents() == [(20, 29, 0)]
    assert world.partition().log_start_offset == 25


def test_a_group_that_was_removed_since_comes_back_with_its_offsets(world: World) -> None:
    world.topic(**{"penstock.undelete.window.ms": str(2 * DEFAULT_LIMITS.groups.group_idle_ms)})
    world.commit_offset(7)
    delete(world)
    world.wait(DEFAULT_LIMITS.groups.group_idle_ms)
    assert world.state.groups == {}
    undelete(world)
    assert world.group().offsets["t"][0].offset == 7


def test_a_group_above_the_limit_does_not_come_back(world: World) -> None:
    world.topic(**{"penstock.undelete.window.ms": str(2 * DEFAULT_LIMITS.groups.group_idle_ms)})
    world.commit_offset(7)
    delete(world)
    world.wait(DEFAULT_LIMITS.groups.group_idle_ms)
    world.use_limits(Limits(groups=GroupLimits(groups_max=0)))
    assert isinstance(undelete(world), TopicCreated)
    assert (world.state.groups, world.state.group_bytes) == ({}, 0)


def test_a_group_that_was_deleted_does_not_come_back(world: World) -> None:
    world.topic(**WINDOW)
    world.commit_offset(7)
    delete(world)
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()
    assert world.state.group_bytes == 0
    undelete(world)
    assert world.state.groups == {}


def test_partitions_of_recoverable_topics_count_towards_the_limit(world: World) -> None:
    world.use_limits(Limits(topics=TopicLimits(partitions_max=3)))
    world.topic(partitions=2, **WINDOW)
    delete(world)
    assert world.topic("u", 2, 2).rejection == Rejection.INVALID_PARTITIONS
    world.wait(WINDOW_MS)
    end_windows(world)
    assert isinstance(world.topic("u", 2, 2), TopicCreated)


def test_the_number_of_recoverable_topics_is_limited(world: World) -> None:
    world.use_limits(Limits(topics=TopicLimits(recoverable_topics_max=1)))
    for name, number in (("t", 1), ("u", 2), ("v", 3)):
        world.topic(name, number=number, **(WINDOW if name != "v" else {}))
    assert delete(world, "t") == Done()
    assert delete(world, "u").rejection == Rejection.OVERLOADED
    assert "u" in world.state.topics
    assert delete(world, "v") == Done()


def test_windows_that_end_together_are_ended_a_few_topics_at_a_time(world: World) -> None:
    world.use_limits(Limits(topics=TopicLimits(partitions_pending_delete_per_step=3)))
    for number in (1, 2, 3, 4):
        world.topic(f"t{number}", 2, number, **WINDOW)
        delete(world, f"t{number}")
    world.wait(WINDOW_MS)
    assert end_windows(world).is_more
    assert world.state.partition_count == 4
    assert not end_windows(world).is_more
    assert world.state.partition_count == 0


def test_the_end_of_a_window_does_not_search_the_partitions_that_are_being_trimmed(world: World) -> None:
    class Watched(deque[Partition]):
        looks = 0

        def __iter__(self) -> Iterator[Partition]:
            for each in super().__iter__():
                self.looks += 1
                yield each

    world.use_limits(Limits(log=LogLimits(extents_dropped_per_command_max=1)))
    for number in range(1, 5):
        world.topic(f"t{number}", 1, number, **WINDOW)
        for _ in range(2):
            world.produce(batch(10, 100), number=number)
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(number), 0, 15) for number in range(1, 5)]))
    for number in range(1, 5):
        delete(world, f"t{number}")
    trimmed = world.state.trimmed = Watched(world.state.trimmed)
    assert len(trimmed) == 3
    world.now_ms += WINDOW_MS
    apply_entry(world.state, world.state.sequence + 1, [[DropExtents(world.now_ms)]])
    assert (world.state.partition_count, trimmed.looks) == (0, 0)
    restored = decode_state(encode_state(world.state), world.state.limits)
    steps = 0
    while world.do(DropExtents(world.now_ms)).is_more:
        apply_entry(restored, restored.sequence + 1, [[DropExtents(world.now_ms)]])
        assert encode_state(restored) == encode_state(world.state)
        steps += 1
        assert steps < 20
    assert (world.state.extent_count, len(world.state.trimmed), len(world.state.pending_delete)) == (0, 0, 0)


def test_the_longest_window_ends_within_the_range_of_a_number(world: World) -> None:
    world.topic(**{"penstock.undelete.window.ms": str(2**63 - 1)})
    delete(world)
    assert deleted(world)[0].until_ms == 2**63 - 1


def test_a_replica_restored_from_a_snapshot_restores_the_same_topic(world: World) -> None:
    world.topic(partitions=2, **WINDOW)
    producer = world.producer()
    world.produce(batch(10, 100, producer=producer, epoch=0, sequence=0))
    world.commit_offset(7)
    delete(world)
    restored = World()
    restored.state, restored.now_ms = decode_state(encode_state(world.state), world.state.limits), world.now_ms
    assert undelete(restored) == undelete(world)
    assert encode_state(restored.state) == encode_state(world.state)
