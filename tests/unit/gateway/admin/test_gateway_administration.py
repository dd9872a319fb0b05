"""Topics are created, grown and deleted: each has its own result, and no part of a request is ignored silently."""

import asyncio
from typing import Any

import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    Outcome,
    Rejected,
    Tick,
    TopicCreated,
)
from penstock.contracts.configs.replicas import REPLICAS
from penstock.contracts.configs.topics import TOPIC_CONFIGS
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import REPLICAS_LEVEL
from penstock.contracts.queries.topics import TopicView, ValidateQuery, ValidateView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.kafkawire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.broker_view import node_of
from tests.unit.gateway.gateway_fakes import ZONE, World, new_world
from tests.unit.gateway.gateway_wire import ask

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
OWN = node_of("127.0.0.1", 9092, ZONE).node_id  # the only broker


def accepting_world(**settings: Any) -> World:
    world = new_world(**settings)
    world.sequencer.record_level(REPLICAS_LEVEL)

    def accept(command: Any) -> Outcome:
        if isinstance(command, CreateTopic):
            return TopicCreated(command.topic_id, command.partitions, command.configs)
        return Done()

    world.sequencer.on_command = accept
    return world


def deletions(world: World) -> list[tuple[str, bytes]]:
    sent = [command for commands in world.sequencer.commands for command in commands]
    return [(command.name, command.topic_id) for command in sent if isinstance(command, DeleteTopic)]


def topic(name: str = "t", partitions: int = 3, factor: int = 1, **configs: str | None) -> CreatableTopic:
    given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, factor, configs=given)


def assigned(*replicas: list[int]) -> CreatableTopic:
    return CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(*each) for each in enumerate(replicas)])


async def created(world: World, *topics: CreatableTopic, version: int = 7, **options: Any) -> dict[str, Any]:
    response = await ask(world, CREATE_TOPICS, version, CreateTopicsRequest(list(topics), 30_000, **options))
    assert len({each.name for each in response.topics}) == len(response.topics)
    return {each.name: each for each in response.topics}


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_and_described_with_all_its_configurations(version: int) -> None:
    world = accepting_world()
    result = (await created(world, topic(max_message_bytes="5000"), version=version))["t"]
    assert (result.error_code, result.error_message) == (0, None)
    if version >= 5:
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert configs.keys() == TOPIC_CONFIGS.keys()
        assert configs["max.message.bytes"] == ("5000", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
        assert (result.num_partitions, result.replication_factor) == (3, 1)
    if version >= 7:
        assert result.topic_id == world.sequencer.commands[0][0].topic_id  # type: ignore[union-attr]


async def test_a_new_topic_is_described_with_the_clusters_defaults() -> None:
    world = accepting_world()
    world.sequencer.cluster_configs = {"log.retention.ms": "1000", "log.retention.bytes": "500"}
    result = (await created(world, topic(retention_bytes="9")))["t"]
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert (configs["retention.ms"], configs["retention.bytes"]) == (("1000", 3), ("9", 1))


async def test_a_topic_is_created_also_while_the_clusters_defaults_are_unknown() -> None:
    world = accepting_world()

    def silent(query: Any) -> Any:
        raise Unavailable("no sequencer knows the query yet")

    world.sequencer.views["cluster_configs"] = silent
    result = (await created(world, topic()))["t"]
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert (result.topic_config_error_code, result.configs) == (ErrorCode.REQUEST_TIMED_OUT, [])


async def test_replicas_may_be_assigned_to_existing_brokers_and_their_number_of_partitions_is_created() -> None:
    result = (await created(accepting_world(), assigned([OWN], [OWN])))["t"]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
    assert {config.name: config.value for config in result.configs}[REPLICAS] == f"{OWN};{OWN}"


async def test_partitions_and_replication_may_be_left_to_the_defaults() -> None:
    world = accepting_world(default_partitions=6)
    assert (await created(world, topic(partitions=-1, factor=-1)))["t"].num_partitions == 6


@pytest.mark.parametrize("factor", [1, 3, 100])
async def test_any_replication_factor_is_accepted_because_the_store_keeps_the_copies(factor: int) -> None:
    assert (await created(accepting_world(), topic(factor=factor)))["t"].error_code == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(max_message_bytes="many"), ErrorCode.INVALID_CONFIG),
        (topic(segment_bytes="1000"), ErrorCode.INVALID_CONFIG),
        (topic(cleanup_policy=None), ErrorCode.INVALID_CONFIG),
        (assigned([0]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # no such broker
        (assigned([OWN], []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([OWN, OWN]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(1, [OWN])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (CreatableTopic("t", 1, -1, [CreatableReplicaAssignment(0, [1])]), ErrorCode.INVALID_REQUEST),
        (CreatableTopic("t", -1, 1, [CreatableReplicaAssignment(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic(partitions=0, factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(partitions=0, factor=0, segment_bytes="1000"), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_an_invalid_topic_is_rejected_with_a_reason_and_the_others_are_created(
    bad: CreatableTopic, error: int
) -> None:
    world = accepting_world()
    results = await created(world, bad, topic("good"))
    assert results[bad.name].error_code == error
    assert results[bad.name].error_message
    assert results["good"].error_code == 0
    assert [command.name for command in world.sequencer.commands[0]] == ["good"]  # type: ignore[union-attr]


async def test_usual_settings_are_accepted_and_described_as_they_were_set() -> None:
    usual = {"segment_bytes": "52428800", "min_insync_replicas": "2", "unclean_leader_election_enable": "false"}
    result = (await created(accepting_world(), topic(factor=3, **usual)))["t"]
    assert result.error_code == 0
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["segment.bytes"] == ("52428800", 1)
    assert configs["min.insync.replicas"] == ("2", 1)
    assert configs["flush.messages"] == (str(2**63 - 1), 5)


@pytest.mark.parametrize("level", [None, 2, 3])
async def test_configurations_that_some_sequencers_do_not_know_are_rejected_at_once(level: int | None) -> None:
    world = accepting_world()
    world.sequencer.seen_level = level
    result = (await created(world, topic(segment_bytes="52428800")))["t"]
    assert result.error_code == (ErrorCode.INVALID_CONFIG if level == 2 else 0)


async def test_in_a_new_cluster_a_topic_waits_for_the_level_that_it_needs() -> None:
    """The level is reached 1 s after the start, and scripts create their topics at once."""
    world = accepting_world()
    world.sequencer.seen_level = 0
    world.sequencer.level_seen_s = world.clock.monotonic_s()
    creating = asyncio.create_task(created(world, topic(segment_bytes="52428800")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not creating.done()
    world.sequencer.record_level(3)
    assert (await creating)["t"].error_code == 0


async def test_an_error_message_has_a_limited_length() -> None:
    result = (await created(accepting_world(), topic(max_message_bytes="9" * 30_000)))["t"]
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert len(result.error_message) <= 1_000


async def test_a_topic_named_twice_in_a_request_is_refused_once() -> None:
    results = await created(accepting_world(), topic(), topic(partitions=5), topic("good"))
    assert {name: result.error_code for name, result in results.items()} == {"t": ErrorCode.INVALID_REQUEST, "good": 0}


async def test_a_topic_that_exists_is_refused() -> None:
    world = new_world()
    world.sequencer.on_command = lambda command: Rejected(Rejection.TOPIC_EXISTS, "topic 't' exists")
    result = (await created(world, topic()))["t"]
    assert (result.error_code, result.error_message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "topic 't' exists")


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("bad", [topic(segment_bytes="1000"), topic(partitions=0), topic(factor=0)])
async def test_the_error_for_an_existing_topic_comes_before_other_errors(
    bad: CreatableTopic, validate_only: bool
) -> None:
    world = accepting_world()
    world.sequencer.add_topic("t")
    result = (await created(world, bad, validate_only=validate_only))["t"]
    assert (result.error_code, result.error_message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


async def test_without_sequencers_other_errors_of_a_topic_are_reported() -> None:
    world = accepting_world()
    world.sequencer.is_down = True
    result = (await created(world, topic(segment_bytes="1000")))["t"]
    assert result.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_topic_named_twice_is_rejected_for_that_also_if_it_exists(validate_only: bool) -> None:
    world = accepting_world()
    world.sequencer.add_topic("t")
    results = await created(world, topic(), topic(factor=0), validate_only=validate_only)
    assert results["t"].error_code == ErrorCode.INVALID_REQUEST


async def test_validation_refuses_what_creation_would() -> None:
    world = accepting_world()
    exists = Rejected(Rejection.TOPIC_EXISTS, "Topic 'b' already exists.")
    world.sequencer.views["validate"] = lambda query: ValidateView(
        1, [exists if each.name == "b" else TopicCreated(each.topic_id, each.partitions, {}) for each in query.commands]
    )
    results = await created(world, topic("a"), topic("b"), topic("c", factor=0), topic("d/"), validate_only=True)
    assert {name: result.error_code for name, result in results.items()} == {
        "a": 0,
        "b": ErrorCode.TOPIC_ALREADY_EXISTS,
        "c": ErrorCode.INVALID_REPLICATION_FACTOR,
        "d/": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert results["a"].num_partitions == 3
    assert world.sequencer.commands == []
    asked = [query for name, query in world.sequencer.queries if name == "validate"]
    assert [query.fresh for query in asked] == [True], "the answer must have changes through other gateways"  # type: ignore[attr-defined]


async def test_validation_only_asks_and_creates_nothing() -> None:
    world = accepting_world()
    world.sequencer.views["validate"] = lambda query: ValidateView(
        1, [TopicCreated(each.topic_id, each.partitions, {}) for each in query.commands]
    )
    assert (await created(world, topic(), validate_only=True))["t"].error_code == 0
    assert world.sequencer.commands == []


async def test_an_unknown_outcome_is_a_time_out() -> None:
    world = accepting_world()
    world.sequencer.is_down = True
    assert (await created(world, topic()))["t"].error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted_by_name(version: int) -> None:
    world = accepting_world()
    view = world.sequencer.add_topic("a")
    request = DeleteTopicsRequest(topic_names=["a", "b", "bad/name"])
    if version >= 6:
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in request.topic_names])
    response = await ask(world, DELETE_TOPICS, version, request)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {each.name: each.error_code for each in response.responses} == {"a": 0, "b": unknown, "bad/name": unknown}
    # Never by name: a repeated or late deletion could delete a newer topic of this name.
    assert deletions(world) == [("", view.topic_id)]


async def test_a_topic_created_again_through_another_gateway_is_deleted_by_its_present_id() -> None:
    world = accepting_world()
    world.sequencer.add_topic("a")
    await world.gateway.topics.find(["a"])
    view = world.sequencer.topics["a"] = TopicView("a", b"2" * 16, 1, {}, leader_epoch=1)
    await ask(world, DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["a"]))
    assert deletions(world) == [("", view.topic_id)]
    # The lookup of the id follows a journaled Tick, so that it sees all earlier changes.
    kinds = [type(command) for commands in world.sequencer.commands for command in commands]
    assert kinds == [Tick, DeleteTopic]


async def test_a_deletion_that_lost_against_another_is_of_an_unknown_topic() -> None:
    world = new_world()
    view = world.sequencer.add_topic("a")
    world.sequencer.add_topic("b")
    world.sequencer.on_command = lambda command: (
        Done() if isinstance(command, Tick) else Rejected(Rejection.UNKNOWN_TOPIC)
    )
    topics = [DeleteTopicState(None, view.topic_id), DeleteTopicState("b")]
    response = await ask(world, DELETE_TOPICS, 6, DeleteTopicsRequest(topics))
    codes = [each.error_code for each in response.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_without_sequencers_a_deletion_times_out() -> None:
    world = accepting_world()
    world.sequencer.is_down = True
    response = await ask(world, DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["a"]))
    assert [each.error_code for each in response.responses] == [ErrorCode.REQUEST_TIMED_OUT]
    assert deletions(world) == []


async def test_topics_are_deleted_by_id() -> None:
    world = accepting_world()
    view = world.sequencer.add_topic("a")
    response = await ask(world, DELETE_TOPICS, 6, DeleteTopicsRequest([DeleteTopicState(None, view.topic_id)]))
    (result,) = response.responses
    assert (result.name, result.topic_id, result.error_code) == ("a", view.topic_id, 0)
    assert deletions(world) == [("", view.topic_id)]


async def test_an_unknown_id_is_refused_as_an_id() -> None:
    world = accepting_world()
    response = await ask(world, DELETE_TOPICS, 6, DeleteTopicsRequest([DeleteTopicState(None, b"?" * 16)]))
    assert [(each.name, each.error_code) for each in response.responses] == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize(
    "topics",
    [
        [DeleteTopicState("a"), DeleteTopicState("a")],
        [DeleteTopicState("a", b"1" * 16)],
        [DeleteTopicState(None)],
    ],
)
async def test_a_deletion_with_both_or_none_of_name_and_id_is_rejected(topics: list[DeleteTopicState]) -> None:
    response = await ask(accepting_world(), DELETE_TOPICS, 6, DeleteTopicsRequest(topics))
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST]


async def test_topics_that_change_are_removed_from_the_cache_at_once() -> None:
    world = accepting_world()
    world.sequencer.add_topic("a")
    await world.gateway.topics.find(["a"])
    await ask(world, CREATE_PARTITIONS, 3, CreatePartitionsRequest([CreatePartitionsTopic("a", 9, None)]))
    assert world.gateway.topics.cached("a") is None
    await world.gateway.topics.find(["a"])
    await ask(world, DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["a"]))
    assert world.gateway.topics.cached("a") is None


@pytest.mark.parametrize("version", range(4))
async def test_topics_grow_each_with_its_own_result(version: int) -> None:
    world = new_world()
    world.sequencer.add_topic("c", 8)
    world.sequencer.views["validate"] = lambda query: ValidateView(1, [Done() for _ in query.commands])
    world.sequencer.on_command = lambda command: (
        Done() if command.count == 9 else Rejected(Rejection.INVALID_PARTITIONS, "has 8 already")  # type: ignore[union-attr]
    )
    topics = [
        CreatePartitionsTopic("a", 9, None),
        CreatePartitionsTopic("b", 8, []),
        CreatePartitionsTopic("c", 9, [CreatePartitionsAssignment([1])]),
        CreatePartitionsTopic("bad/name", 9),
        CreatePartitionsTopic("d", 9),
        CreatePartitionsTopic("d", 9),
    ]
    response = await ask(world, CREATE_PARTITIONS, version, CreatePartitionsRequest(topics))
    assert {each.name: (each.error_code, each.error_message) for each in response.results if each.name in "ab"} == {
        "a": (0, None),
        "b": (ErrorCode.INVALID_PARTITIONS, "has 8 already"),
    }
    rest = {each.name: each.error_code for each in response.results if each.name not in "ab"}
    assert rest == {
        "c": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "bad/name": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "d": ErrorCode.INVALID_REQUEST,
    }


async def test_growth_is_only_validated_if_the_request_says_so() -> None:
    world = accepting_world()
    rejected = Rejected(Rejection.INVALID_PARTITIONS, "Topic already has 3 partition(s).")
    world.sequencer.views["validate"] = lambda query: ValidateView(
        1, [rejected if each.count == 3 else Done() for each in query.commands]
    )
    topics = [CreatePartitionsTopic("a", 3), CreatePartitionsTopic("b", 4)]
    response = await ask(world, CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics, validate_only=True))
    assert {each.name: (each.error_code, each.error_message) for each in response.results} == {
        "a": (ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        "b": (0, None),
    }
    assert world.sequencer.commands == []


async def test_an_outage_between_the_checks_of_assignments_has_an_answer_for_each_topic() -> None:
    world = new_world()
    world.sequencer.add_topic("t", 2)

    def validated(query: ValidateQuery) -> ValidateView:
        world.sequencer.is_down = True
        return ValidateView(1, [Done() for _ in query.commands])

    world.sequencer.views["validate"] = validated
    topics = [CreatePartitionsTopic("t", 3, [CreatePartitionsAssignment([OWN])]), CreatePartitionsTopic("bad/name", 3)]
    response = await ask(world, CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics))
    assert {each.name: each.error_code for each in response.results} == {
        "t": ErrorCode.REQUEST_TIMED_OUT,
        "bad/name": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.sequencer.commands == []


async def test_an_assignment_is_checked_only_where_a_topic_would_grow() -> None:
    world = accepting_world()
    outcomes = {
        "absent": Rejected(Rejection.UNKNOWN_TOPIC, "The topic 'absent' does not exist."),
        "same": Rejected(Rejection.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        "grows": Done(),
        "grows-by-two": Done(),
        "elsewhere": Done(),
        "nowhere": Done(),
    }
    for name in ("grows", "grows-by-two", "elsewhere", "nowhere"):
        world.sequencer.add_topic(name, 1 if name == "grows-by-two" else 2)
    world.sequencer.views["validate"] = lambda query: ValidateView(1, [outcomes[each.name] for each in query.commands])
    replicas = {name: 0 if name == "elsewhere" else OWN for name in outcomes}
    topics = [CreatePartitionsTopic(name, 3, [CreatePartitionsAssignment([replicas[name]])]) for name in outcomes]
    topics[-1] = CreatePartitionsTopic("nowhere", 3, [])  # an empty list is none, unlike null, as in Kafka
    response = await ask(world, CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics))
    assert {each.name: each.error_code for each in response.results} == {
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "same": ErrorCode.INVALID_PARTITIONS,
        "grows": 0,
        "grows-by-two": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "elsewhere": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "nowhere": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    (grown,), (kept,) = world.sequencer.commands
    assert isinstance(grown, CreatePartitions) and grown.name == "grows"
    assert isinstance(kept, AlterConfigs) and kept.topic == "grows"
