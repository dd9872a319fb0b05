"""Produce by topic id (KIP-516): batches go to the topic with the id, and an unknown id is rejected."""

from collections.abc import AsyncIterator

import pytest

from penstock.contracts.ids import NO_TOPIC_ID, TopicId, topic_id_text
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.unit.gateway.gateway_fakes import FakeFlusher, World, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask, batch

PRODUCE, VERSION = 0, 13
UNKNOWN_ID = b"an unknown topic id"[:16]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = new_world()
    made.sequencer.add_topic("t", 2)
    async with with_flushes(made):
        yield made


@pytest.fixture
async def flusher(world: World) -> FakeFlusher:
    return await world.add_flusher("f1")


def request(topic_id: TopicId, *indexes: int, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index, batch()) for index in indexes]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData("", topic_id, data)])


async def answers(world: World, asked: ProduceRequest) -> list[tuple[int, int]]:
    response = await ask(world, PRODUCE, VERSION, asked)
    assert [topic.topic_id for topic in response.responses] == [topic.topic_id for topic in asked.topic_data]
    return [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]


async def test_batches_go_to_the_topic_with_the_id(world: World, flusher: FakeFlusher) -> None:
    topic_id = world.sequencer.topics["t"].topic_id
    assert await answers(world, request(topic_id, 0, 1)) == [(0, 0), (0, 1)]
    assert [(each.topic_id, each.partition) for each in flusher.produces[0].batches] == [(topic_id, 0), (topic_id, 1)]


@pytest.mark.parametrize("topic_id", [UNKNOWN_ID, NO_TOPIC_ID])
async def test_an_id_of_no_topic_is_rejected(world: World, flusher: FakeFlusher, topic_id: TopicId) -> None:
    assert await answers(world, request(topic_id, 0)) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert flusher.produces == []


async def test_a_partition_that_the_topic_does_not_have_is_rejected(world: World, flusher: FakeFlusher) -> None:
    topic_id = world.sequencer.topics["t"].topic_id
    assert await answers(world, request(topic_id, 2)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_a_topic_that_grew_is_known_with_its_new_partitions(world: World, flusher: FakeFlusher) -> None:
    topic_id = world.sequencer.topics["t"].topic_id
    assert await answers(world, request(topic_id, 1)) == [(0, 0)]
    world.sequencer.add_topic("t", 3)
    assert await answers(world, request(topic_id, 2)) == [(0, 1)]


async def test_the_id_of_a_deleted_topic_is_rejected_as_an_id_and_leaves_the_cache(
    world: World, flusher: FakeFlusher
) -> None:
    topic_id = world.sequencer.topics["t"].topic_id
    flusher.rejection = Rejection.UNKNOWN_TOPIC
    assert await answers(world, request(topic_id, 0)) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert world.gateway.topics.cached_id(topic_id) is None


async def test_without_an_answer_the_connection_ends_and_the_reason_has_the_id(
    world: World, flusher: FakeFlusher
) -> None:
    with pytest.raises(CloseConnection, match=topic_id_text(UNKNOWN_ID)):
        await ask(world, PRODUCE, VERSION, request(UNKNOWN_ID, 0, acks=0))
