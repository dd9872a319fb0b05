"""Topics: their names, partitions and configurations; a deleted topic leaves nothing behind."""

import pytest

from penstock.contracts.commands import CreatePartitions, CreateTopic, DeleteTopic, Done, Rejected, TopicCreated
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.queries.topics import MetadataQuery, TopicView, ValidateQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, LogLimits, TopicLimits
from tests.unit.sequencer.core.core_world import World, batch, topic_id


@pytest.fixture
def world() -> World:
    return World()


def test_a_topic_is_created_as_requested_and_announced(world: World) -> None:
    configs = {"max.message.bytes": "2000"}
    outcome = world.do(CreateTopic(world.now_ms, "orders", topic_id(1), 3, configs))
    assert outcome == TopicCreated(topic_id(1), 3, configs)
    assert world.effects is not None
    assert world.effects.topics == ["orders"]
    view = queries.metadata(world.state, MetadataQuery(0, None))
    assert view.topics == [TopicView("orders", topic_id(1), 3, configs, 1)]


def test_minus_one_partitions_means_the_default_of_one(world: World) -> None:
    assert world.topic(partitions=-1).partitions == 1


def test_a_repeated_create_is_answered_with_the_existing_topic(world: World) -> None:
    world.topic("t", 1)
    world.do(CreatePartitions(world.now_ms, "t", 4))
    assert world.topic("t", 1) == TopicCreated(topic_id(1), 4, {})
    assert world.effects is not None
    assert world.effects.topics == []


def test_an_existing_name_is_rejected(world: World) -> None:
    world.topic("t", number=1)
    assert world.topic("t", number=2).rejection == Rejection.TOPIC_EXISTS


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_illegal_names_are_rejected(world: World, name: str) -> None:
    assert world.topic(name).rejection == Rejection.INVALID_TOPIC


def test_names_that_collide_in_metrics_are_rejected(world: World) -> None:
    world.topic("a.b", number=1)
    assert world.topic("a_b", number=2).rejection == Rejection.INVALID_TOPIC
    world.do(DeleteTopic(world.now_ms, "a.b", NO_TOPIC_ID))
    assert isinstance(world.topic("a_b", number=2), TopicCreated)


@pytest.mark.parametrize("identifier", [NO_TOPIC_ID, b"short", b""])
def test_an_invalid_topic_id_is_rejected(world: World, identifier: bytes) -> None:
    assert world.do(CreateTopic(world.now_ms, "t", identifier, 1, {})).rejection == Rejection.INVALID_REQUEST


@pytest.mark.parametrize("partitions", [0, -2, DEFAULT_LIMITS.topics.partitions_per_topic_max + 1])
def test_impossible_partition_counts_are_rejected(world: World, partitions: int) -> None:
    assert world.topic(partitions=partitions).rejection == Rejection.INVALID_PARTITIONS


def test_the_largest_topic_can_be_created(world: World) -> None:
    assert (
        world.topic(partitions=DEFAULT_LIMITS.topics.partitions_per_topic_max).partitions
        == DEFAULT_LIMITS.topics.partitions_per_topic_max
    )


def test_the_partitions_of_all_topics_are_limited(world: World) -> None:
    world.use_limits(Limits(topics=TopicLimits(partitions_max=5)))
    world.topic("t", 3, 1)
    assert world.topic("u", 3, 2).rejection == Rejection.INVALID_PARTITIONS
    assert world.do(CreatePartitions(world.now_ms, "t", 6)).rejection == Rejection.INVALID_PARTITIONS
    assert world.do(CreatePartitions(world.now_ms, "t", 5)) == Done()


def test_unknown_and_invalid_configurations_are_rejected_by_name(world: World) -> None:
    outcome = world.do(CreateTopic(world.now_ms, "t", topic_id(1), 1, {"max.message.bytes": "no", "colour": "red"}))
    assert outcome.rejection == Rejection.INVALID_CONFIG
    assert "max.message.bytes" in outcome.message
    assert "colour" in outcome.message


def test_a_topic_grows_and_never_shrinks(world: World) -> None:
    world.topic(partitions=2)
    assert world.do(CreatePartitions(world.now_ms, "t", 3)) == Done()
    assert world.produce(batch(), partition=2)[0].rejection == Rejection.NONE
    for count in (3, 2, 0, -1, DEFAULT_LIMITS.topics.partitions_per_topic_max + 1):
        assert world.do(CreatePartitions(world.now_ms, "t", count)).rejection == Rejection.INVALID_PARTITIONS
    assert world.do(CreatePartitions(world.now_ms, "nowhere", 3)).rejection == Rejection.UNKNOWN_TOPIC


def test_a_topic_is_deleted_by_name_or_by_id(world: World) -> None:
    world.topic("t", number=1)
    world.topic("u", number=2)
    assert world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID)) == Done()
    assert world.do(DeleteTopic(world.now_ms, "", topic_id(2))) == Done()
    assert world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID)).rejection == Rejection.UNKNOWN_TOPIC
    assert world.state.topics == {}


def test_segments_with_records_of_a_deleted_topic_only_are_dead(world: World) -> None:
    world.topic("t", number=1)
    world.topic("u", number=2)
    world.do(world.segment_command((1, 0, [batch(length=30)])))
    world.do(world.segment_command((1, 0, [batch(length=30)]), (2, 0, [batch(length=40)])))
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert list(world.state.segments.live_bytes) == [0, 40]
    assert list(world.state.segments.dead_since_ms) == [world.now_ms, -1]


def test_the_extents_of_a_large_deleted_topic_are_dropped_step_by_step(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(extents_dropped_per_step_max=2)))
    world.topic()
    for _ in range(5):
        world.produce(batch())
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert world.state.extent_count == 3
    world.wait(1)
    assert world.state.extent_count == 1
    world.wait(1)
    assert world.state.extent_count == 0
    assert len(world.state.pending_delete) == 0


def test_deleting_a_topic_removes_the_offsets_that_groups_committed_in_it(world: World) -> None:
    world.topic("t", number=1)
    world.topic("u", number=2)
    world.commit_offset(topic="t")
    world.commit_offset(topic="u")
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert list(world.group().offsets) == ["u"]


def test_a_late_retry_of_its_creation_does_not_restore_a_deleted_topic(world: World) -> None:
    world.topic("t")
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    world.wait(DEFAULT_LIMITS.topics.deleted_topic_memory_ms)
    assert world.topic("t").rejection == Rejection.INVALID_REQUEST
    assert isinstance(world.topic("t", number=2), TopicCreated)
    world.wait(1)
    assert world.state.deleted_topics == {}


def test_a_repeated_deletion_by_id_is_done_and_keeps_the_topic_that_was_created_again(world: World) -> None:
    deletion = DeleteTopic(world.now_ms, "", topic_id(1))
    assert world.do(deletion).rejection == Rejection.UNKNOWN_TOPIC
    world.topic("t", number=1)
    assert world.do(deletion) == Done()
    world.topic("t", number=2)
    assert world.do(deletion) == Done()
    assert world.state.topics["t"].topic_id == topic_id(2)


def test_the_memory_of_deleted_topics_is_bounded(world: World) -> None:
    world.use_limits(Limits(topics=TopicLimits(deleted_topics_max=2)))
    for number in (1, 2, 3):
        world.topic("t", number=number)
        world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert list(world.state.deleted_topics) == [topic_id(2), topic_id(3)]


def test_validation_answers_like_the_command_and_changes_nothing(world: World) -> None:
    world.topic("t", 2)
    commands = [
        CreateTopic(world.now_ms, "new", topic_id(7), -1, {}),
        CreateTopic(world.now_ms, "t", topic_id(8), 1, {}),
        CreatePartitions(world.now_ms, "t", 3),
        CreatePartitions(world.now_ms, "t", 1),
        DeleteTopic(world.now_ms, "t", NO_TOPIC_ID),
    ]
    outcomes = queries.validate(world.state, ValidateQuery(0, list(commands))).outcomes
    assert outcomes[0] == TopicCreated(topic_id(7), 1, {})
    assert outcomes[2] == Done()
    rejections = [each.rejection for each in outcomes if isinstance(each, Rejected)]
    assert rejections == [Rejection.TOPIC_EXISTS, Rejection.INVALID_PARTITIONS, Rejection.INVALID_REQUEST]
    assert list(world.state.topics) == ["t"]
    assert len(world.state.topics["t"].partitions) == 2
