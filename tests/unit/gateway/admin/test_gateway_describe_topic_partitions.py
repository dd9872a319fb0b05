"""DescribeTopicPartitions lists topics in the order of their names, in pages of partitions, none twice."""

from typing import Any

import pytest

from penstock.kafkawire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

DESCRIBE_TOPIC_PARTITIONS = 75
Partitions = list[tuple[str, int]]


@pytest.fixture
def world() -> World:
    made = new_world()
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        made.sequencer.add_topic(name, partitions)
    return made


async def described(world: World, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> Any:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
    return await ask(world, DESCRIBE_TOPIC_PARTITIONS, 0, request)


def partitions(response: Any) -> Partitions:
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


def errors(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


ALL = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_topics_are_listed_with_ids_leaders_and_epochs(world: World) -> None:
    response = await described(world, "a")
    (topic,) = response.topics
    view = world.sequencer.topics["a"]
    assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, "a", view.topic_id, False)
    leader = world.gateway.nodes["PLAINTEXT"].node_id
    for partition in topic.partitions:
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (leader, [leader], [leader])
        assert (partition.error_code, partition.leader_epoch) == (0, view.leader_epoch)
        # The Java client fails at null here.
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert response.next_cursor is None


async def test_without_names_all_topics_are_listed(world: World) -> None:
    response = await described(world)
    assert partitions(response) == ALL
    assert response.next_cursor is None


@pytest.mark.parametrize("names", [(), ("c", "b", "a", "a")])
@pytest.mark.parametrize("limit", range(1, 8))
async def test_page_by_page_every_partition_comes_once(world: World, limit: int, names: tuple[str, ...]) -> None:
    seen: Partitions = []
    cursor = None
    while True:
        response = await described(world, *names, limit=limit, cursor=cursor)
        assert 0 < len(partitions(response)) <= limit
        seen += partitions(response)
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == ALL


@pytest.mark.parametrize("limit", [0, -5])
async def test_a_limit_below_one_is_one(world: World, limit: int) -> None:
    response = await described(world, limit=limit)
    assert partitions(response) == [("a", 0)]
    assert response.next_cursor == Cursor("a", 1)


async def test_no_answer_has_more_than_two_thousand_partitions(world: World) -> None:
    world.sequencer.add_topic("large", 2_500)
    response = await described(world, "large", limit=1_000_000)
    assert len(partitions(response)) == 2_000
    assert response.next_cursor == Cursor("large", 2_000)


async def test_a_cursor_at_a_topic_deleted_since_goes_on_with_the_next(world: World) -> None:
    del world.sequencer.topics["b"]
    assert partitions(await described(world, cursor=Cursor("b", 1))) == [("c", 0)]


async def test_a_cursor_behind_the_last_partition_goes_on_with_the_next(world: World) -> None:
    assert partitions(await described(world, cursor=Cursor("b", 9))) == [("c", 0)]


async def test_a_negative_cursor_is_refused(world: World) -> None:
    response = await described(world, "a", cursor=Cursor("a", -1))
    assert errors(response) == {"a": ErrorCode.INVALID_REQUEST}


async def test_unknown_topics_and_illegal_names_have_errors(world: World) -> None:
    response = await described(world, "b", "absent", "not/legal")
    assert errors(response) == {
        "b": ErrorCode.NONE,
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


async def test_without_sequencers_cached_topics_are_listed_and_others_close_the_connection(world: World) -> None:
    await described(world, "a")
    world.sequencer.is_down = True
    assert errors(await described(world, "a")) == {"a": ErrorCode.NONE}
    with pytest.raises(CloseConnection, match="no sequencer answered"):
        await described(world, "a", "b")
