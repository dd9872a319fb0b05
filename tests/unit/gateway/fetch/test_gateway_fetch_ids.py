"""Fetch by topic id (KIP-516): the id's own records, and never those of another topic that took the name."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from penstock.contracts.commands import CreateTopic, DeleteTopic
from penstock.contracts.ids import NO_TOPIC_ID, TopicId
from penstock.kafkawire.api import decode_response, encode_response
from penstock.kafkawire.api.fetch import FetchRequest, FetchResponse, FetchTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.data import fetch
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import START_MS, World, asking, batch_of, partitions_of, values_of

FETCH = 1
VERSIONS = range(13, 18)
NEW_ID = b"another topic id"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


def by_id(topic_id: TopicId, offsets: dict[int, int], max_wait_ms: int = 0) -> FetchRequest:
    named = asking(offsets, max_wait_ms=max_wait_ms)
    return FetchRequest(
        max_wait_ms=named.max_wait_ms,
        min_bytes=named.min_bytes,
        max_bytes=named.max_bytes,
        topics=[FetchTopic(topic_id=topic_id, partitions=named.topics[0].partitions)],
    )


async def fetched(world: World, request: FetchRequest, version: int = 17) -> FetchResponse:
    response = await fetch.handle(world.gateway, world.client, version, request)
    answer: FetchResponse = decode_response(FETCH, version, b"".join(encode_response(FETCH, version, response)))
    assert [topic.topic_id for topic in answer.responses] == [topic.topic_id for topic in request.topics]
    return answer


async def errors(world: World, request: FetchRequest) -> list[int]:
    return [data.error_code for data in partitions_of(await fetched(world, request)).values()]


async def create_again(world: World, *, announce: bool = True) -> None:
    """Delete the topic "t", and create another one with that name and a record."""
    await world.commit([DeleteTopic(START_MS, "t", bytes(16))], announce=announce)
    await world.commit([CreateTopic(START_MS, "t", NEW_ID, 1, {})], announce=announce)
    await world.produce(NEW_ID, {0: [batch_of(b"new")]}, announce=announce)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_id_gets_its_topics_records(world: World, version: int) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b")]})
    answer = partitions_of(await fetched(world, by_id(topic_id, {0: 0}), version))
    assert (answer[0].error_code, answer[0].high_watermark, values_of(answer[0])) == (0, 2, {0: b"a", 1: b"b"})


@pytest.mark.parametrize("topic_id", [NEW_ID, NO_TOPIC_ID])
async def test_an_id_of_no_topic_is_unknown(world: World, topic_id: TopicId) -> None:
    await world.open()
    assert await errors(world, by_id(topic_id, {0: 0, 1: 0})) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


async def test_a_partition_that_the_topic_does_not_have_is_unknown(world: World) -> None:
    topic_id = await world.open(partitions=1)
    assert await errors(world, by_id(topic_id, {1: 0})) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_the_old_id_of_a_topic_created_again_gets_nothing_of_the_new_one(world: World) -> None:
    old_id = await world.open(partitions=1)
    await world.produce(old_id, {0: [batch_of(b"old")]})
    await create_again(world)
    assert await errors(world, by_id(old_id, {0: 0})) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert values_of(partitions_of(await fetched(world, by_id(NEW_ID, {0: 0})))[0]) == {0: b"new"}


async def test_a_gateway_without_the_announcement_serves_the_old_topic_or_nothing(world: World) -> None:
    old_id = await world.open(partitions=1)
    await world.produce(old_id, {0: [batch_of(b"old")]})
    assert values_of(partitions_of(await fetched(world, by_id(old_id, {0: 0})))[0]) == {0: b"old"}
    await create_again(world, announce=False)
    assert (await world.topics.find(["t"]))["t"].topic_id == old_id, "the new topic was not announced"
    (data,) = partitions_of(await fetched(world, by_id(old_id, {0: 0}))).values()
    assert values_of(data) == {0: b"old"}
    world.tail.remove((old_id, 0))  # then the sequencers are asked, which know the new topic
    assert await errors(world, by_id(old_id, {0: 0})) == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_fetch_that_waits_by_an_id_gets_an_error_when_its_topic_is_deleted(world: World) -> None:
    old_id = await world.open(partitions=1)
    waiting = asyncio.create_task(errors(world, by_id(old_id, {0: 0}, max_wait_ms=60_000)))
    await until(lambda: "plan" in world.sequencer.asked)
    await create_again(world)
    assert await waiting == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_without_sequencers_a_cached_id_is_served_and_another_gets_a_retriable_error(world: World) -> None:
    topic_id = await world.open(partitions=1)
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await fetched(world, by_id(topic_id, {0: 0}))
    world.sequencer.is_down = True
    request = by_id(topic_id, {0: 0})
    both = FetchRequest(topics=[*request.topics, *by_id(NEW_ID, {0: 0}).topics], max_bytes=request.max_bytes)
    known, other = (topic.partitions[0] for topic in (await fetched(world, both)).responses)
    assert values_of(known) == {0: b"a"}
    assert other.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("seed", range(20))
async def test_an_id_gets_only_its_own_records_while_topics_are_created_and_deleted(world: World, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    await world.tail.open()
    await world.bus.flush()
    produced: dict[TopicId, list[bytes]] = {}
    alive: TopicId | None = None
    served = 0
    for step in range(60):
        announce = chance.random() < 0.6
        if alive is None:
            alive = step.to_bytes(16)
            produced[alive] = []
            await world.commit([CreateTopic(START_MS, "t", alive, 1, {})], announce=announce)
        elif chance.random() < 0.2:
            await world.commit([DeleteTopic(START_MS, "t", bytes(16))], announce=announce)
            alive = None
        elif chance.random() < 0.5:
            produced[alive].append(b"%d" % step)
            await world.produce(alive, {0: [batch_of(b"%d" % step)]}, announce=announce)
        for topic_id in chance.sample(sorted(produced), min(2, len(produced))):
            (data,) = partitions_of(await fetched(world, by_id(topic_id, {0: 0}))).values()
            if data.error_code:
                assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            else:
                values = list(values_of(data).values())
                assert values == produced[topic_id][: len(values)]
                served += len(values)
    assert served, "nothing was ever read"
