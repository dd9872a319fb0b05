"""A Fetch that names a partition several times, or very many of them, is answered as Kafka answers it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_read_world import World, asking, batch_of, partitions_of, values_of


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


def requested(number: int, offset: int) -> FetchPartition:
    return FetchPartition(number, fetch_offset=offset, partition_max_bytes=1_000_000)


async def test_of_a_partition_named_several_times_the_last_mention_is_answered_once(world: World) -> None:
    """Kafka puts the partitions of a request into a map: the place is that of the first mention."""
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")], 1: [batch_of(b"x")]})
    topics = [
        FetchTopic("t", partitions=[requested(0, 0), requested(1, 0), requested(0, 99)]),
        FetchTopic("none", partitions=[requested(0, 0)]),
        FetchTopic("t", partitions=[requested(0, 1)]),
    ]
    response = await world.fetch(FetchRequest(max_bytes=1_000_000, topics=topics))
    answers = [(topic.topic, each.partition_index) for topic in response.responses for each in topic.partitions]
    assert answers == [("t", 0), ("t", 1), ("none", 0)]
    assert values_of(response.responses[0].partitions[0]) == {1: b"b"}
    assert response.responses[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_of_very_many_partitions_lets_other_fetches_run(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    partitions = [requested(number + 1_000, 0) for number in range(20_000)]
    task = asyncio.create_task(world.fetch(FetchRequest(topics=[FetchTopic("t", partitions=partitions)])))
    answered = 0
    while not task.done():
        answers = partitions_of(await world.fetch(asking({0: 0})))
        assert values_of(answers[0]) == {0: b"a"}
        answered += 1
        await asyncio.sleep(0)  # the small fetch may be answered without a turn for the other task
    response = await task
    assert len(response.responses[0].partitions) == 20_000
    assert answered > 2, "one turn for all its partitions"
