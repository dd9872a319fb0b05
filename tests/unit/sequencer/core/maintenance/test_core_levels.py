"""The level of a cluster, and the commands that may be journaled at it."""

from typing import get_args

import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    Command,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    Done,
    ExpireLogs,
    LogRef,
    RaiseLevel,
    RecordArchived,
    TakeCustody,
    Tick,
)
from penstock.contracts.levels import (
    COMMAND_LEVELS,
    JANITOR_LEVEL,
    KEY_COMPACTION_LEVEL,
    NEWEST_LEVEL,
    level_of,
)
from penstock.contracts.rejections import Rejection
from tests.unit.sequencer.core.core_world import World, batch, topic_id

# The commands of release 0.1.0, and the command that raises the level.
WITHOUT_LEVEL = {
    "Tick",
    "CommitSegment",
    "CreateTopic",
    "DeleteTopic",
    "CreatePartitions",
    "AllocateProducer",
    "JoinGroup",
    "SyncGroup",
    "LeaveGroup",
    "ExpireMember",
    "CommitOffsets",
    "DeleteGroup",
    "RaiseLevel",
}


def test_the_level_rises_and_never_falls() -> None:
    world = World()
    assert world.state.level == 0
    assert world.do(RaiseLevel(world.now_ms, 1)) == Done()
    assert world.do(RaiseLevel(world.now_ms, 1)).rejection == Rejection.INVALID_REQUEST
    assert world.do(RaiseLevel(world.now_ms, 3)) == Done()
    assert world.do(RaiseLevel(world.now_ms, 2)).rejection == Rejection.INVALID_REQUEST
    assert world.state.level == 3


def test_every_command_newer_than_0_1_0_has_a_level() -> None:
    assert {each.__name__ for each in get_args(Command) if each not in COMMAND_LEVELS} == WITHOUT_LEVEL
    assert {*COMMAND_LEVELS.values()} <= {*range(1, NEWEST_LEVEL + 1)}


def test_a_cluster_that_kept_its_records_for_ever_keeps_them_until_its_configuration_changes() -> None:
    week_ms = 7 * 24 * 3_600_000
    world = World()
    world.topic()
    world.produce(batch())
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    assert world.state.cluster_configs == {"log.retention.ms": "-1"}
    world.wait(week_ms + 1)
    expiry = ExpireLogs(world.now_ms, [LogRef(topic_id(1), 0)])
    assert world.do(expiry).logs[0].extents == 0
    back = ConfigChange("log.retention.ms", ConfigOperation.DELETE)
    assert world.do(AlterConfigs(world.now_ms, "", [back], seen_sequence=1)).rejection == Rejection.STALE
    assert world.do(AlterConfigs(world.now_ms, "", [back], seen_sequence=world.state.sequence)) == Done()
    assert world.do(expiry).logs[0].extents == 1


def test_a_new_cluster_has_kafkas_retention_even_with_records_from_before_its_level() -> None:
    world = World()
    world.topic()
    world.produce(batch())
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL, is_new=True))
    assert world.state.cluster_configs == {}


def test_a_cluster_without_records_has_none_to_keep() -> None:
    world = World()
    world.topic()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    assert world.state.cluster_configs == {}


def test_several_commands_need_the_level_of_the_newest() -> None:
    assert level_of([]) == 0
    assert level_of([Tick(1)]) == 0
    assert level_of([Tick(1), TakeCustody(1, "r")]) == COMMAND_LEVELS[TakeCustody]


@pytest.mark.parametrize(
    ("configs", "level"),
    [
        ({}, 0),
        ({"max.message.bytes": "5000", "retention.ms": "-1"}, 0),
        ({"cleanup.policy": "compact"}, KEY_COMPACTION_LEVEL),
        ({"retention.ms": "1000"}, JANITOR_LEVEL),
        ({"cleanup.policy": "compact", "penstock.undelete.window.ms": "1"}, JANITOR_LEVEL),
    ],
)
def test_a_topic_needs_the_level_of_its_configurations(configs: dict[str, str], level: int) -> None:
    assert level_of([CreateTopic(1, "t", bytes(16), 1, configs)]) == level


def test_a_journal_from_before_the_levels_is_applied_without_a_level() -> None:
    world = World()
    world.do(TakeCustody(world.now_ms, "r"))
    assert world.do(RecordArchived(world.now_ms, "r", 1)) == Done()
    assert world.state.level == 0


def test_a_compacted_topic_that_0_1_0_rejected_is_rejected_in_every_replay() -> None:
    world = World()
    compacted = {"cleanup.policy": "compact"}
    assert world.topic(**compacted).rejection == Rejection.INVALID_CONFIG
    assert not world.state.topics
    world.do(RaiseLevel(world.now_ms, KEY_COMPACTION_LEVEL))
    assert world.topic(**compacted).configs == compacted


def test_retention_that_earlier_releases_rejected_is_rejected_in_every_replay() -> None:
    world = World()
    world.do(RaiseLevel(world.now_ms, KEY_COMPACTION_LEVEL))
    kept = {"retention.ms": "1000"}
    assert world.topic(**kept).rejection == Rejection.INVALID_CONFIG
    assert not world.state.topics
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    assert world.topic(**kept).configs == kept
