"""Configurations change as in Kafka: a command changes all that it names, or none, and lists item by item."""

import msgspec
import pytest

from penstock.contracts.commands import AlterConfigs, ConfigChange, ConfigOperation, DeleteTopic, Done, RaiseLevel
from penstock.contracts.levels import BROKER_CONFIGS_LEVEL, JANITOR_LEVEL, KAFKA_VALUES_LEVEL, OFFSET_EXPIRY_LEVEL
from penstock.contracts.queries.topics import ValidateQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.limits import TopicLimits
from tests.unit.sequencer.core.core_world import World

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def world_with(**configs: str) -> World:
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.topic(**configs)
    return world


def alter(
    world: World, *changes: ConfigChange, topic: str = "t", replace: bool = False, seen: int = -1
) -> AlterConfigs:
    return AlterConfigs(world.now_ms, topic, list(changes), replace, seen)


def configs(world: World) -> dict[str, str]:
    return world.state.topics["t"].configs


def test_configurations_that_are_not_named_stay_the_same() -> None:
    world = world_with(**{"retention.ms": "1", "retention.bytes": "2"})
    changed = alter(world, ConfigChange("retention.ms", SET, "3"), ConfigChange("max.message.bytes", SET, "100"))
    assert world.do(changed) == Done()
    assert configs(world) == {"retention.ms": "3", "retention.bytes": "2", "max.message.bytes": "100"}
    assert world.do(alter(world, ConfigChange("retention.ms", DELETE))) == Done()
    assert configs(world) == {"retention.bytes": "2", "max.message.bytes": "100"}


def test_a_full_replacement_resets_configurations_that_are_not_named() -> None:
    world = world_with(**{"retention.ms": "1", "retention.bytes": "2"})
    assert world.do(alter(world, ConfigChange("retention.ms", SET, "3"), replace=True)) == Done()
    assert configs(world) == {"retention.ms": "3"}


@pytest.mark.parametrize(
    ("operation", "value", "after"),
    [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "delete", "delete"),
        (APPEND, "compact, delete", "delete,compact"),
        (SUBTRACT, "compact", "delete"),
    ],
)
def test_a_change_of_an_unset_list_starts_from_its_default(operation: ConfigOperation, value: str, after: str) -> None:
    world = world_with()
    assert world.do(alter(world, ConfigChange("cleanup.policy", operation, value))) == Done()
    assert configs(world) == {"cleanup.policy": after}


def test_a_subtraction_leaves_the_rest_of_the_list() -> None:
    world = world_with(**{"cleanup.policy": "compact,delete"})
    world.do(alter(world, ConfigChange("cleanup.policy", SUBTRACT, "delete")))
    assert configs(world) == {"cleanup.policy": "compact"}


GOOD = ConfigChange("retention.ms", SET, "5")
MIN_LAG, MAX_LAG = ConfigChange("min.compaction.lag.ms", SET, "2"), ConfigChange("max.compaction.lag.ms", SET, "1")


@pytest.mark.parametrize(
    ("changes", "rejection", "words"),
    [
        ([GOOD, ConfigChange("colour", SET, "red")], Rejection.INVALID_CONFIG, "colour is not a supported topic"),
        ([GOOD, ConfigChange("colour", DELETE)], Rejection.INVALID_CONFIG, "colour is not a supported topic"),
        ([GOOD, ConfigChange("retention.bytes", SET, "-2")], Rejection.INVALID_CONFIG, "retention.bytes must be"),
        (
            [GOOD, ConfigChange("retention.bytes", APPEND, "2")],
            Rejection.INVALID_CONFIG,
            "Can't APPEND to key retention",
        ),
        (
            [GOOD, ConfigChange("cleanup.policy", APPEND, "soon")],
            Rejection.INVALID_CONFIG,
            "cleanup.policy must be",
        ),
        ([GOOD, MIN_LAG, MAX_LAG], Rejection.INVALID_CONFIG, "must not be larger"),
        ([GOOD, GOOD], Rejection.INVALID_REQUEST, "duplicate config keys: retention.ms"),
    ],
)
@pytest.mark.parametrize("replace", [False, True])
def test_one_bad_change_rejects_all_changes_of_the_command(
    changes: list[ConfigChange], rejection: Rejection, words: str, replace: bool
) -> None:
    world = world_with(**{"retention.ms": "1"})
    rejected = world.do(alter(world, *changes, replace=replace))
    assert rejected.rejection == rejection
    assert words in rejected.message
    assert configs(world) == {"retention.ms": "1"}
    assert world.effects is not None
    assert world.effects.topics == []


def test_a_topic_that_does_not_exist_is_rejected() -> None:
    world = world_with()
    assert world.do(alter(world, GOOD, topic="other")).rejection == Rejection.UNKNOWN_TOPIC


def test_group_defaults_are_set_only_when_all_replicas_support_them() -> None:
    world = world_with()
    minutes = ConfigChange("offsets.retention.minutes", SET, "1")
    before = encode_state(world.state)
    assert world.do(alter(world, minutes, topic="")).rejection == Rejection.INVALID_CONFIG
    world.state.sequence -= 1
    assert encode_state(world.state) == before
    world.do(RaiseLevel(world.now_ms, OFFSET_EXPIRY_LEVEL))
    assert world.do(alter(world, minutes, topic="")) == Done()
    assert world.state.cluster_configs == {"offsets.retention.minutes": "1"}
    assert world.do(alter(world, minutes)).rejection == Rejection.INVALID_CONFIG, "topics have no such configuration"


def test_the_clusters_defaults_are_set_and_reset_by_the_brokers_names() -> None:
    world = world_with()
    assert world.do(alter(world, ConfigChange("log.retention.ms", SET, "5"), topic="")) == Done()
    assert world.state.cluster_configs == {"log.retention.ms": "5"}
    rejected = world.do(alter(world, ConfigChange("retention.ms", SET, "6"), topic=""))
    assert rejected.rejection == Rejection.INVALID_CONFIG
    assert "retention.ms is not a supported cluster configuration" in rejected.message
    assert world.do(alter(world, ConfigChange("log.retention.ms", DELETE), topic="")) == Done()
    assert world.state.cluster_configs == {}


@pytest.mark.parametrize(("topic", "name"), [("t", "retention.ms"), ("", "log.retention.ms")])
def test_a_late_change_does_not_undo_a_later_one(topic: str, name: str) -> None:
    world = world_with()
    seen = world.state.sequence
    first = alter(world, ConfigChange(name, SET, "5"), topic=topic, seen=seen)
    assert world.do(first) == Done()
    assert world.do(first) == Done()  # sent again by another replica
    assert world.do(alter(world, ConfigChange(name, SET, "-1"), topic=topic, seen=world.state.sequence)) == Done()
    assert world.do(first).rejection == Rejection.STALE
    found = configs(world) if topic else world.state.cluster_configs
    assert found == {name: "-1"}


def test_a_late_change_does_not_apply_to_a_topic_that_was_created_again() -> None:
    world = world_with()
    late = alter(world, GOOD, seen=world.state.sequence)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.topic(number=2)
    assert world.do(late).rejection == Rejection.STALE
    assert configs(world) == {}


def test_a_change_of_configurations_is_announced() -> None:
    world = world_with()
    world.do(alter(world, GOOD))
    assert world.effects is not None
    assert world.effects.topics == ["t"]


def test_validation_returns_the_outcome_and_changes_nothing() -> None:
    world = world_with()
    before = encode_state(world.state)
    wanted = [alter(world, GOOD), alter(world, ConfigChange("colour", SET, "red")), alter(world, GOOD, topic="other")]
    done, unknown, missing = queries.validate(world.state, ValidateQuery(0, wanted)).outcomes
    assert done == Done()
    assert (unknown.rejection, missing.rejection) == (Rejection.INVALID_CONFIG, Rejection.UNKNOWN_TOPIC)
    assert encode_state(world.state) == before


@pytest.mark.parametrize(
    "change",
    [
        ConfigChange("compression.type", SET, "zstd"),
        ConfigChange("compression.zstd.level", SET, "5"),
        ConfigChange("compression.zstd.level", DELETE),
        ConfigChange("cleanup.policy", SUBTRACT, "delete"),
        ConfigChange("leader.replication.throttled.replicas", APPEND, "0:1"),
    ],
)
def test_what_older_replicas_reject_changes_nothing_below_its_level(change: ConfigChange) -> None:
    world = world_with()
    world.do(RaiseLevel(world.now_ms, KAFKA_VALUES_LEVEL - 1))
    before = world.state.topics["t"].altered_sequence
    assert world.do(alter(world, change)).rejection == Rejection.INVALID_CONFIG
    assert (configs(world), world.state.topics["t"].altered_sequence) == ({}, before)
    world.do(RaiseLevel(world.now_ms, KAFKA_VALUES_LEVEL))
    assert world.do(alter(world, change)) == Done()


def test_the_cluster_may_have_a_codec_from_its_level_on() -> None:
    world = world_with()
    world.do(RaiseLevel(world.now_ms, KAFKA_VALUES_LEVEL - 1))
    change = ConfigChange("compression.type", SET, "gzip")
    assert world.do(alter(world, change, topic="")).rejection == Rejection.INVALID_CONFIG
    world.do(RaiseLevel(world.now_ms, KAFKA_VALUES_LEVEL))
    assert world.do(alter(world, change, topic="")) == Done()
    assert world.state.cluster_configs == {"compression.type": "gzip"}


THREADS = ConfigChange("penstock.broker.7.num.io.threads", SET, "3")


def test_a_single_broker_may_have_configurations_from_its_level_on() -> None:
    world = world_with()
    world.do(RaiseLevel(world.now_ms, BROKER_CONFIGS_LEVEL - 1))
    for change in (THREADS, ConfigChange(THREADS.name, DELETE)):
        assert world.do(alter(world, change, topic="")).rejection == Rejection.INVALID_CONFIG
    world.do(RaiseLevel(world.now_ms, BROKER_CONFIGS_LEVEL))
    assert world.do(alter(world, THREADS, topic="")) == Done()
    assert world.state.cluster_configs == {THREADS.name: "3"}
    assert world.do(alter(world, THREADS)).rejection == Rejection.INVALID_CONFIG, "topics have no such configuration"


def test_a_replacement_of_the_clusters_configurations_keeps_those_of_single_brokers() -> None:
    world = world_with()
    world.do(RaiseLevel(world.now_ms, BROKER_CONFIGS_LEVEL))
    world.do(alter(world, THREADS, ConfigChange("log.retention.ms", SET, "5"), topic=""))
    assert world.do(alter(world, ConfigChange("log.retention.bytes", SET, "6"), topic="", replace=True)) == Done()
    assert world.state.cluster_configs == {THREADS.name: "3", "log.retention.bytes": "6"}


def test_the_configurations_of_single_brokers_have_a_limit_and_can_then_still_be_changed_and_removed() -> None:
    world = world_with()
    world.state.limits = msgspec.structs.replace(world.state.limits, topics=TopicLimits(broker_configs_max=2))
    world.do(RaiseLevel(world.now_ms, BROKER_CONFIGS_LEVEL))
    names = [f"penstock.broker.{number}.num.io.threads" for number in range(3)]
    assert world.do(alter(world, *[ConfigChange(name, SET, "1") for name in names[:2]], topic="")) == Done()
    rejected = world.do(alter(world, ConfigChange(names[2], SET, "1"), topic=""))
    assert (rejected.rejection, rejected.message) == (
        Rejection.INVALID_REQUEST,
        "single brokers have 2 configurations: remove some",
    )
    assert world.do(alter(world, ConfigChange(names[1], SET, "2"), topic="")) == Done()
    moved = [ConfigChange(names[1], DELETE), ConfigChange(names[2], SET, "1")]
    assert world.do(alter(world, *moved, topic="")) == Done()
    assert world.state.cluster_configs == {names[0]: "1", names[2]: "1"}
