"""Elections and reassignments: nothing moves, and partitions are described as clients asked."""

from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import Done, Rejected
from penstock.contracts.configs.replicas import REPLICAS
from penstock.contracts.levels import REPLICAS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.kafkawire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.kafkawire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.kafkawire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.broker_view import node_of
from tests.testkit.work import counted_work
from tests.unit.gateway.gateway_fakes import ZONE, World, gateway_presence, new_world
from tests.unit.gateway.gateway_wire import ask

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
METADATA, DESCRIBE_PARTITIONS = 3, 75


@pytest.fixture
def world() -> World:
    made = new_world()
    made.sequencer.add_topic("t", 2)
    return made


async def elected(world: World, *topics: TopicPartitions, version: int = 2) -> dict[tuple[str, int], int]:
    response = await ask(world, ELECT_LEADERS, version, ElectLeadersRequest(0, list(topics)))
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


async def altered(world: World, *partitions: ReassignablePartition, topic: str = "t", version: int = 1) -> list[Any]:
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, list(partitions))])
    response = await ask(world, ALTER_REASSIGNMENTS, version, request)
    assert (response.error_code, response.error_message) == (0, None)
    return [(each.partition_index, each.error_code, each.error_message) for each in response.responses[0].partitions]


async def work_of_reassignments(world: World, name: str, partitions: int) -> int:
    """The work when the last partition of a new topic is named many times."""
    world.sequencer.add_topic(name, partitions)
    topics = [ReassignableTopic(name, [ReassignablePartition(partitions - 1, [0])]) for _ in range(50)]
    with counted_work() as work:
        response = await ask(world, ALTER_REASSIGNMENTS, 1, AlterPartitionReassignmentsRequest(topics=topics))
    errors = {each.error_code for topic in response.responses for each in topic.partitions}
    assert errors == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    return work.instructions


async def test_the_work_for_a_topic_that_is_named_often_grows_with_its_named_partitions_only(world: World) -> None:
    small = await work_of_reassignments(world, "small", 10)
    assert await work_of_reassignments(world, "large", 1_000) < 2 * small


@pytest.mark.parametrize("version", range(3))
async def test_an_election_is_not_needed_for_an_existing_partition(world: World, version: int) -> None:
    asked = [TopicPartitions("t", [0, 1, 2]), TopicPartitions("other", [0])]
    assert await elected(world, *asked, version=version) == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("other", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_an_election_for_all_partitions_lists_none_because_none_needs_it(world: World) -> None:
    response = await ask(world, ELECT_LEADERS, 2, ElectLeadersRequest(1, None))
    assert (response.error_code, response.replica_election_results) == (0, [])


async def test_an_election_of_an_unknown_kind_is_refused(world: World) -> None:
    response = await ask(world, ELECT_LEADERS, 2, ElectLeadersRequest(2, None))
    assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_without_sequencers_an_election_has_a_retriable_error(world: World) -> None:
    world.sequencer.is_down = True
    assert await elected(world, TopicPartitions("t", [0])) == {("t", 0): ErrorCode.REQUEST_TIMED_OUT}


def alter(world: World, command: Any) -> Done:
    """Sequencers that keep the configuration."""
    (change,) = command.changes
    view = world.sequencer.topics[command.topic]
    world.sequencer.topics[command.topic] = msgspec.structs.replace(view, configs={change.name: change.value})
    return Done()


@pytest.fixture
def brokers(world: World) -> list[int]:
    """The ids of three brokers; the first is asked."""
    world.sequencer.record_level(REPLICAS_LEVEL)
    world.sequencer.on_command = lambda command: alter(world, command)
    for number in (1, 2):
        world.directory.put(gateway_presence(f"g{number}", PLAINTEXT=(f"host-{number}", 9092)))
    return [node_of("127.0.0.1", 9092, ZONE).node_id, *(node_of(f"host-{n}", 9092, ZONE).node_id for n in (1, 2))]


async def placed(world: World) -> list[tuple[list[int], list[int], list[int]]]:
    """Replicas, those in sync and those offline, as both APIs describe them."""
    asked: Any = MetadataRequest([MetadataRequestTopic(name="t")])
    (topic,) = (await ask(world, METADATA, 12, asked)).topics
    found = [(each.replica_nodes, each.isr_nodes, each.offline_replicas) for each in topic.partitions]
    asked = DescribeTopicPartitionsRequest([TopicRequest("t")])
    (topic,) = (await ask(world, DESCRIBE_PARTITIONS, 0, asked)).topics
    assert found == [(each.replica_nodes, each.isr_nodes, each.offline_replicas) for each in topic.partitions]
    return found


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_is_described_at_once_with_the_replicas_that_were_asked_for(
    world: World, brokers: list[int], version: int
) -> None:
    (first,), *_ = (await placed(world))[1]
    one, two, three = brokers
    assert await altered(world, ReassignablePartition(0, [three, one]), version=version) == [(0, 0, None)]
    assert await placed(world) == [([three, one], [three, one], []), ([first], [first], [])]
    assert await altered(world, ReassignablePartition(1, [two]), version=version) == [(1, 0, None)]
    assert await placed(world) == [([three, one], [three, one], []), ([two], [two], [])]
    world.directory.drop("g2")
    assert (await placed(world))[0] == ([three, one], [one], [three])


async def test_a_concurrent_reassignment_of_another_partition_is_kept(world: World, brokers: list[int]) -> None:
    world.sequencer.on_command = lambda command: steal(world, brokers[2])
    assert await altered(world, ReassignablePartition(0, [brokers[1]])) == [(0, 0, None)]
    assert [replicas for replicas, _, _ in await placed(world)] == [[brokers[1]], [brokers[2]]]


def steal(world: World, broker: int) -> Rejected:
    """Sequencers that got another change before the first command."""
    world.sequencer.on_command = lambda command: alter(world, command)
    view = world.sequencer.topics["t"]
    world.sequencer.topics["t"] = msgspec.structs.replace(view, configs={REPLICAS: f";{broker}"})
    return Rejected(Rejection.STALE, "changed since")


async def test_an_id_that_no_broker_can_have_makes_no_topic_unreadable(world: World, brokers: list[int]) -> None:
    own = brokers[0]
    view = world.sequencer.topics["t"]
    configs = {REPLICAS: f"{own},2147483648;9999999999"}
    world.sequencer.topics["t"] = msgspec.structs.replace(view, configs=configs)
    first, (at_leader, in_sync, offline) = await placed(world)
    assert first == ([own], [own], [])
    assert (len(at_leader), in_sync, offline) == (1, at_leader, [])


async def test_invalid_reassignments_have_kafkas_errors_and_words(world: World, brokers: list[int]) -> None:
    own, other, _ = brokers
    unplaced, unknown = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await altered(
        world,
        ReassignablePartition(0, [9]),
        ReassignablePartition(0, []),
        ReassignablePartition(0, [own, own]),
        ReassignablePartition(0, None),
        ReassignablePartition(2, [own]),
    ) == [
        (0, unplaced, "The manual partition assignment includes broker 9, but no such broker is registered."),
        (0, unplaced, "The manual partition assignment includes an empty replica list."),
        (0, unplaced, f"The manual partition assignment includes the broker {own} more than once."),
        (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        (2, unknown, "Unable to find partition t:2."),
    ]
    missing = await altered(world, ReassignablePartition(0, [own]), topic="other")
    assert missing == [(0, unknown, "Unable to find a topic named other.")]
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False,
        topics=[ReassignableTopic("t", [ReassignablePartition(0, [own, other]), ReassignablePartition(1, [other])])],
    )
    first, second = (await ask(world, ALTER_REASSIGNMENTS, 1, request)).responses[0].partitions
    assert (first.error_code, second.error_code) == (ErrorCode.INVALID_REPLICATION_FACTOR, 0)
    assert first.error_message == "The replication factor is changed from 1 to 2"


@pytest.mark.parametrize("topics", [None, [ListPartitionReassignmentsTopics("t", [0])]])
async def test_no_reassignment_is_in_progress(world: World, topics: Any) -> None:
    response = await ask(world, LIST_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(topics=topics))
    assert (response.error_code, response.error_message, response.topics) == (0, None, [])
