"""Retention queries: the logs with overdue records, and how many, in answers of bounded size and work."""

import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    ExpireLogs,
    LogOffset,
    LogRef,
    RaiseLevel,
    Tick,
)
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.janitor import OverdueLog, RetentionQuery, RetentionView
from penstock.contracts.queries.topics import ClusterConfigsQuery
from penstock_sequencer.core.log import retention_queries
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, LogLimits
from tests.unit.sequencer.core.core_world import World, batch, topic_id

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    return world


def retention(world: World, first_topic: int = 0) -> RetentionView:
    return retention_queries.retention(world.state, RetentionQuery(0, world.now_ms, first_topic))


def test_overdue_logs_are_reported_with_extents_bytes_and_time(world: World) -> None:
    world.topic("aged", 2, 1, **{"retention.ms": str(HOUR_MS)})
    world.topic("large", 1, 2, **{"retention.bytes": "100"})
    world.topic("kept", 1, 3, **{"retention.ms": "-1"})
    for number, partition in ((1, 1), (1, 1), (2, 0), (2, 0), (3, 0)):
        world.produce(batch(10, 100), number=number, partition=partition)
    world.wait(HOUR_MS + 7)
    view = retention(world)
    assert view.logs == [OverdueLog(topic_id(1), 1, 2, 200, 7), OverdueLog(topic_id(2), 0, 1, 100, 0)]
    assert (view.clock_ms, view.next_topic) == (world.now_ms, -1)
    world.do(ExpireLogs(world.now_ms, [LogRef(each.topic_id, each.partition) for each in view.logs]))
    assert retention(world).logs == []


def test_a_log_is_overdue_by_the_clients_clock_and_the_machines(world: World) -> None:
    world.topic(**{"retention.ms": str(HOUR_MS)})
    world.produce(batch())
    world.now_ms += HOUR_MS + 7
    assert retention(world).logs == []
    world.do(Tick(world.now_ms + HOUR_MS))
    assert retention(world).logs == [OverdueLog(topic_id(1), 0, 1, 100, 7)]
    world.now_ms -= 7
    assert retention(world).logs == []


def test_a_log_that_is_being_trimmed_is_reported_after_that(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(extents_dropped_per_command_max=1)))
    world.topic(**{"retention.bytes": "100"})
    for _ in range(4):
        world.produce(batch(10, 100))
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 20)]))
    assert retention(world).logs == []
    world.wait(1)
    assert [each.extents for each in retention(world).logs] == [1]


def test_an_answer_has_no_more_logs_than_a_command_and_names_the_topic_to_continue_with(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(logs_per_command_max=2)))
    for number in (1, 2):
        world.topic(f"t{number}", 2, number, **{"retention.bytes": "0"})
        world.produce(batch(), number=number)
        world.produce(batch(), number=number, partition=1)
    view = retention(world)
    assert ([each.topic_id for each in view.logs], view.next_topic) == ([topic_id(1)] * 2, 1)
    world.produce(batch(), number=1)
    world.use_limits(Limits(log=LogLimits(logs_per_command_max=1)))
    view = retention(world)
    assert ([each.partition for each in view.logs], view.next_topic) == ([0], 0)


def test_an_answer_checks_a_bounded_number_of_partitions(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(overdue_partitions_asked_max=3)))
    for number in (1, 2, 3):
        world.topic(f"t{number}", 2, number)
    assert [retention(world, first).next_topic for first in (0, 1, 2, 3, 2**63 - 1, -5)] == [1, 2, -1, -1, -1, 1]


def test_an_answer_checks_a_bounded_number_of_topics(world: World) -> None:
    """Topics that keep everything count, too."""
    world.use_limits(Limits(answers=AnswerLimits(overdue_topics_asked_max=2)))
    for number in (1, 2, 3, 4):
        world.topic(f"t{number}", 1, number, **{"retention.ms": "-1", "retention.bytes": "-1" if number < 4 else "0"})
    world.produce(batch(), number=4)
    assert [retention(world, first).next_topic for first in (0, 1, 2, 3)] == [2, 3, -1, -1]
    assert [each.topic_id for each in retention(world, 2).logs] == [topic_id(4)]


def test_extents_are_counted_up_to_a_limit_but_every_log_is_reported(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(overdue_extents_counted_max=2)))
    world.topic(partitions=2, **{"retention.bytes": "0"})
    for partition in (0, 0, 0, 1, 1):
        world.produce(batch(10, 100), partition=partition)
    assert [each.extents for each in retention(world).logs] == [2, 1]


def test_the_clusters_defaults_are_reported_as_they_were_set(world: World) -> None:
    assert retention_queries.cluster_configs(world.state, ClusterConfigsQuery(0)).configs == {}
    world.do(AlterConfigs(world.now_ms, "", [ConfigChange("log.retention.ms", ConfigOperation.SET, "5")]))
    assert retention_queries.cluster_configs(world.state, ClusterConfigsQuery(0)).configs == {"log.retention.ms": "5"}
