"""OffsetForLeaderEpoch: the only epoch ends where the log ends, and other epochs are answered as in Kafka."""

from collections.abc import AsyncIterator

import pytest

from penstock.contracts.commands import DeleteTopic
from penstock.kafkawire.api import decode_response, encode_response
from penstock.kafkawire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.data import offset_for_leader_epoch
from penstock_sequencer.core.state.cluster import LEADER_EPOCH
from tests.unit.gateway.gateway_read_world import START_MS, World, batch_of

OFFSET_FOR_LEADER_EPOCH = 23
NONE = -1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    topic_id = await made.open(partitions=2)
    await made.produce(topic_id, {0: [batch_of(b"a", b"b", b"c")]})
    yield made
    await made.close()


async def ends(
    world: World, *asked: OffsetForLeaderPartition, topic: str = "t", version: int = 4
) -> list[EpochEndOffset]:
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, list(asked))])
    response = await offset_for_leader_epoch.handle(world.gateway, world.client, version, request)
    data = b"".join(encode_response(OFFSET_FOR_LEADER_EPOCH, version, response))
    (answered,) = decode_response(OFFSET_FOR_LEADER_EPOCH, version, data).topics
    assert answered.topic == topic
    return list(answered.partitions)


def of(partition: int, epoch: int, current: int = NONE) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(partition, current, epoch)


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_epoch_ends_at_the_high_watermark(world: World, version: int) -> None:
    answers = await ends(world, of(0, LEADER_EPOCH), of(1, LEADER_EPOCH), version=version)
    assert answers == [EpochEndOffset(0, 0, LEADER_EPOCH, 3), EpochEndOffset(0, 1, LEADER_EPOCH, 0)]


async def test_the_end_includes_records_acknowledged_by_another_gateway(world: World) -> None:
    world.sequencer.fall_behind()
    await world.produce(await topic_id_of(world), {0: [batch_of(b"d")]}, announce=False)
    assert await ends(world, of(0, LEADER_EPOCH)) == [EpochEndOffset(0, 0, LEADER_EPOCH, 4)]


async def topic_id_of(world: World) -> bytes:
    return (await world.topics.find(["t"]))["t"].topic_id


async def test_an_epoch_before_all_records_ends_where_they_begin(world: World) -> None:
    assert await ends(world, of(0, LEADER_EPOCH - 1)) == [EpochEndOffset(0, 0, LEADER_EPOCH - 1, 0)]


@pytest.mark.parametrize("epoch", [LEADER_EPOCH + 1, -1, -7])
async def test_an_epoch_that_never_was_has_no_end(world: World, epoch: int) -> None:
    assert await ends(world, of(0, epoch)) == [EpochEndOffset(0, 0, NONE, NONE)]


async def test_a_client_with_old_or_too_new_metadata_gets_an_error(world: World) -> None:
    answers = await ends(
        world,
        of(0, LEADER_EPOCH, current=LEADER_EPOCH),
        of(0, LEADER_EPOCH, current=LEADER_EPOCH - 1),
        of(0, LEADER_EPOCH, current=LEADER_EPOCH + 1),
    )
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


async def test_topics_and_partitions_that_do_not_exist_are_unknown(world: World) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await ends(world, of(0, LEADER_EPOCH), topic="other") == [EpochEndOffset(unknown, 0)]
    assert await ends(world, of(2, LEADER_EPOCH)) == [EpochEndOffset(unknown, 2)]


async def test_a_topic_deleted_since_it_was_looked_up_is_unknown(world: World) -> None:
    await world.topics.find(["t"])
    await world.commit([DeleteTopic(START_MS, "t", bytes(16))], announce=False)
    assert await ends(world, of(0, LEADER_EPOCH)) == [EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]


async def test_without_sequencers_clients_get_a_retriable_error(world: World) -> None:
    await world.topics.find(["t"])
    world.sequencer.is_down = True
    assert await ends(world, of(0, LEADER_EPOCH)) == [EpochEndOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
