"""Metadata: one leader per client, topics created on first use, and no wrong answer about an existing topic."""

from typing import Any

import pytest

from penstock.contracts.commands import CreateTopic, Outcome, Rejected, TopicCreated
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.describe_cluster import DescribeClusterRequest
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.broker_view import node_of
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.unit.gateway.gateway_fakes import CLUSTER, LISTENER, World, gateway_presence, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

VERSION = 12


def creating_world(**settings: Any) -> World:
    world = new_world(**settings)

    def create(command: Any) -> Outcome:
        assert isinstance(command, CreateTopic)
        if command.name in world.sequencer.topics:
            return Rejected(Rejection.TOPIC_EXISTS)
        view = world.sequencer.add_topic(command.name, command.partitions)
        return TopicCreated(view.topic_id, view.partitions, {})

    world.sequencer.on_command = create
    return world


def named(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def errors(response: Any) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_is_described_in_every_version(version: int) -> None:
    world = new_world()
    view = world.sequencer.add_topic("t", 3)
    response = await ask(world, 3, version, named("t"))
    (topic,) = response.topics
    own = world.gateway.nodes[LISTENER].node_id
    assert (topic.error_code, topic.name) == (0, "t")
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    assert {partition.leader_id for partition in topic.partitions} == {own}
    assert all(partition.replica_nodes == partition.isr_nodes == [own] for partition in topic.partitions)
    if version >= 7:
        assert {partition.leader_epoch for partition in topic.partitions} == {view.leader_epoch}
    if version >= 10:
        assert topic.topic_id == view.topic_id


@pytest.mark.parametrize(
    ("version", "request_"), [(0, named()), (1, MetadataRequest(topics=None)), (12, MetadataRequest(topics=None))]
)
async def test_all_topics_are_listed(version: int, request_: MetadataRequest) -> None:
    world = new_world()
    world.sequencer.add_topic("a")
    world.sequencer.add_topic("b")
    assert errors(await ask(world, 3, version, request_)) == {"a": 0, "b": 0}


async def test_no_topics_are_listed_when_none_is_asked_for() -> None:
    world = new_world()
    world.sequencer.add_topic("a")
    response = await ask(world, 3, VERSION, named())
    assert response.topics == []
    assert response.cluster_id == CLUSTER
    assert response.controller_id == response.brokers[0].node_id


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "t"])
async def test_ids_in_versions_10_and_11_are_rejected_as_in_kafka(version: int, name: str | None) -> None:
    world = new_world()
    view = world.sequencer.add_topic("t", 1)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="u"), MetadataRequestTopic(view.topic_id, name)])
    answer = await ask(world, 3, version, asked)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("u", ErrorCode.INVALID_REQUEST),
        (name or "", ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("no_name", [None, ""], ids=["null", "empty, as from the Java client"])
async def test_a_topic_is_found_by_its_id(no_name: str | None) -> None:
    world = new_world()
    view = world.sequencer.add_topic("a")
    asked = MetadataRequest(topics=[MetadataRequestTopic(each, no_name) for each in (view.topic_id, b"?" * 16)])
    known, unknown = (await ask(world, 3, VERSION, asked)).topics
    assert (known.name, known.error_code) == ("a", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_topic_is_created_on_first_use() -> None:
    world = creating_world(default_partitions=5)
    response = await ask(world, 3, VERSION, named("new"))
    assert errors(response) == {"new": 0}
    assert len(response.topics[0].partitions) == 5


async def test_a_topic_that_another_client_creates_first_is_described_too() -> None:
    world = creating_world()
    make = world.sequencer.on_command

    def lose(command: Any) -> Outcome:
        world.sequencer.add_topic(command.name, 4)
        assert make is not None
        return make(command)

    world.sequencer.on_command = lose
    response = await ask(world, 3, VERSION, named("new"))
    assert (errors(response), len(response.topics[0].partitions)) == ({"new": 0}, 4)


@pytest.mark.parametrize(("create", "setting"), [(False, True), (True, False)])
async def test_a_topic_is_not_created_if_the_client_or_the_settings_forbid_it(create: bool, setting: bool) -> None:
    world = creating_world(auto_create_topics=setting)
    assert errors(await ask(world, 3, VERSION, named("new", create=create))) == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert world.sequencer.commands == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "é"])
async def test_an_illegal_name_is_rejected_and_never_created(name: str) -> None:
    world = creating_world()
    assert errors(await ask(world, 3, VERSION, named(name, "good"))) == {
        name: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "good": 0,
    }


async def test_legal_names_are_created_beside_illegal_ones_and_repeated_names_once() -> None:
    world = creating_world()
    response = await ask(world, 3, VERSION, named("a", "b/", "a", "c"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", 0),
        ("b/", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", 0),
    ]
    assert [[command.name for command in commands] for commands in world.sequencer.commands] == [["a", "c"]]  # type: ignore[union-attr]


async def test_a_request_for_too_many_new_topics_creates_none_as_in_kafka() -> None:
    world = creating_world()
    names = [f"new-{number}" for number in range(5_001)]
    response = await ask(world, 3, VERSION, named(*names))
    assert {topic.error_code for topic in response.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.sequencer.commands == []


async def test_a_request_by_id_creates_no_topic() -> None:
    world = creating_world()
    asked = MetadataRequest(topics=[MetadataRequestTopic(b"?" * 16, None)], allow_auto_topic_creation=True)
    assert errors(await ask(world, 3, VERSION, asked)) == {None: ErrorCode.UNKNOWN_TOPIC_ID}
    assert world.sequencer.commands == []


async def test_a_rejected_creation_has_its_error() -> None:
    world = new_world()
    world.sequencer.on_command = lambda command: Rejected(Rejection.INVALID_TOPIC)
    assert errors(await ask(world, 3, VERSION, named("a.b"))) == {"a.b": ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_without_sequencers_known_topics_are_answered() -> None:
    world = creating_world()
    world.sequencer.add_topic("known")
    await ask(world, 3, VERSION, named("known"))
    world.sequencer.is_down = True
    assert errors(await ask(world, 3, VERSION, named("known"))) == {"known": 0}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(named("made", create=False), id="by name"),
        pytest.param(named("made"), id="to be created"),
        pytest.param(named("known", "made"), id="beside a known one"),
        pytest.param(MetadataRequest(topics=[MetadataRequestTopic(b"made".ljust(16, b"\1"), None)]), id="by id"),
    ],
)
async def test_without_sequencers_a_topic_that_may_exist_closes_the_connection(
    asked: MetadataRequest,
) -> None:
    """No error code is right: another gateway may have confirmed that the topic exists."""
    world = creating_world()
    world.sequencer.add_topic("known")
    await ask(world, 3, VERSION, named("known"))
    world.sequencer.add_topic("made")
    world.sequencer.is_down = True
    with pytest.raises(CloseConnection, match="no sequencer answered"):
        await ask(world, 3, VERSION, asked)
    world.sequencer.is_down = False
    assert {topic.error_code for topic in (await ask(world, 3, VERSION, asked)).topics} == {ErrorCode.NONE}


async def test_a_creation_whose_end_is_unknown_is_neither_told_nor_denied() -> None:
    world = creating_world()
    create = world.sequencer.on_command
    assert create is not None

    def create_and_lose_the_answer(command: Any) -> Outcome:
        create(command)
        raise Unavailable("no answer came")

    world.sequencer.on_command = create_and_lose_the_answer
    with pytest.raises(CloseConnection, match="no answer came"):
        await ask(world, 3, VERSION, named("new"))
    assert errors(await ask(world, 3, VERSION, named("new"))) == {"new": 0}


async def test_without_sequencers_a_listing_is_never_an_empty_one() -> None:
    """A consumer that subscribed to a pattern would take it for a deletion of everything."""
    world = new_world()
    world.sequencer.is_down = True
    with pytest.raises(CloseConnection, match="no sequencer answered"):
        await ask(world, 3, VERSION, MetadataRequest(topics=None))


async def test_one_client_sees_one_leader_and_different_clients_spread() -> None:
    world = new_world()
    world.sequencer.add_topic("t", 8)
    for number in range(2, 5):
        world.directory.put(gateway_presence(f"g{number}", PLAINTEXT=(f"10.0.0.{number}", 9092)))
    leaders = set()
    for number in range(60):
        client = new_client(f"client-{number}")
        topic = (await ask(world, 3, VERSION, named("t"), client)).topics[0]
        (leader,) = {partition.leader_id for partition in topic.partitions}
        leaders.add(leader)
    expected = {node_of(f"10.0.0.{number}", 9092, "z1").node_id for number in range(2, 5)}
    assert leaders == expected | {world.gateway.nodes[LISTENER].node_id}


async def test_a_client_is_shown_the_brokers_of_its_zone_with_the_zone_as_rack() -> None:
    world = new_world()
    world.directory.put(gateway_presence("g2", "z2", PLAINTEXT=("10.0.0.2", 9092)))
    brokers = (await ask(world, 3, VERSION, named(), new_client("app,zone=z2"))).brokers
    assert [(broker.host, broker.rack) for broker in brokers] == [("10.0.0.2", "z2")]


def two_listeners() -> World:
    """A gateway in z1 behind its zone's proxy, another one there too, and one in z2 behind that zone's proxy."""
    own = {"INTERNAL": node_of("10.0.0.1", 9092, "z1"), "EXTERNAL": node_of("localhost", 9092, "z1")}
    world = new_world(nodes=own)
    world.directory.put(gateway_presence("g2", "z1", INTERNAL=("10.0.0.2", 9092), EXTERNAL=("localhost", 9092)))
    world.directory.put(gateway_presence("g3", "z2", INTERNAL=("10.0.0.3", 9092), EXTERNAL=("localhost", 9094)))
    return world


@pytest.mark.parametrize(
    ("listener", "zone", "told"),
    [
        ("INTERNAL", "z1", {"10.0.0.1:9092", "10.0.0.2:9092"}),
        ("EXTERNAL", "z1", {"localhost:9092"}),
        ("INTERNAL", "z2", {"10.0.0.3:9092"}),
        ("EXTERNAL", "z2", {"localhost:9094"}),
        ("INTERNAL", "z3", {"10.0.0.1:9092", "10.0.0.2:9092", "10.0.0.3:9092"}),
        ("EXTERNAL", "z3", {"localhost:9092", "localhost:9094"}),
    ],
)
async def test_a_client_is_told_its_zones_addresses_for_the_listener_that_it_came_by(
    listener: str, zone: str, told: set[str]
) -> None:
    world, client = two_listeners(), new_client(f"app,zone={zone}", listener)
    metadata = await ask(world, 3, VERSION, named(), client)
    cluster = await ask(world, 60, 1, DescribeClusterRequest(), client)
    assert {f"{broker.host}:{broker.port}" for broker in metadata.brokers} == told
    assert {f"{broker.host}:{broker.port}" for broker in cluster.brokers} == told
    assert metadata.controller_id in {broker.node_id for broker in metadata.brokers}


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described_as_metadata_describes_it(version: int) -> None:
    world = new_world()
    metadata = await ask(world, 3, VERSION, named())
    cluster = await ask(world, 60, version, DescribeClusterRequest())
    assert (cluster.cluster_id, cluster.controller_id) == (CLUSTER, metadata.controller_id)
    assert [broker.broker_id for broker in cluster.brokers] == [broker.node_id for broker in metadata.brokers]


@pytest.mark.parametrize(
    ("endpoint", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_only_brokers_are_described(endpoint: int, error: ErrorCode) -> None:
    response = await ask(new_world(), 60, 1, DescribeClusterRequest(endpoint_type=endpoint))
    assert response.error_code == error
