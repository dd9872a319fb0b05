"""Elections and reassignments: nothing can move, and clients get Kafka's errors for that."""

from typing import Any

import pytest

from penstock.kafkawire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.kafkawire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.kafkawire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46


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


@pytest.mark.parametrize("version", range(2))
async def test_a_reassignment_is_rejected_with_a_reason(world: World, version: int) -> None:
    ((partition, error, message),) = await altered(world, ReassignablePartition(1, [7]), version=version)
    assert (partition, error) == (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert "replicas cannot be assigned" in message


async def test_there_is_no_reassignment_to_cancel(world: World) -> None:
    ((_, error, _),) = await altered(world, ReassignablePartition(0, None))
    assert error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_reassignment_of_an_unknown_partition_has_kafkas_error(world: World) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await altered(world, ReassignablePartition(2, [7])) == [(2, unknown, None)]
    assert await altered(world, ReassignablePartition(0, [7]), topic="other") == [(0, unknown, None)]


@pytest.mark.parametrize("topics", [None, [ListPartitionReassignmentsTopics("t", [0])]])
async def test_no_reassignment_is_in_progress(world: World, topics: Any) -> None:
    response = await ask(world, LIST_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(topics=topics))
    assert (response.error_code, response.error_message, response.topics) == (0, None, [])
