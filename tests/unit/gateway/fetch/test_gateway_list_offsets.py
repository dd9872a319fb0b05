"""ListOffsets finds the ends of partitions, and the first record at or after a time, as Kafka does."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api import decode_response, encode_response
from penstock.kafkawire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from penstock.objectstore.memory import MemoryStore
from penstock_gateway.fetch.limits import ReadLimits
from penstock_gateway.fetch.timestamp_search import first_at
from penstock_gateway.parts import GatewayLimits
from tests.unit.gateway.gateway_compaction import compact
from tests.unit.gateway.gateway_read_world import World, batch_of

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NOT_FOUND = (0, -1, -1)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@contextlib.asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    yield made
    assert made.log_reader.held_bytes == 0, "a search kept bytes of the budget"
    await made.close()


def request(*wanted: tuple[int, int], topic: str = "t", leader_epoch: int = -1) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(number, leader_epoch, timestamp) for number, timestamp in wanted]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])


async def ask(world: World, *wanted: tuple[int, int], version: int = 7) -> list[ListOffsetsPartitionResponse]:
    (topic,) = (await world.list_offsets(request(*wanted), version)).topics
    return topic.partitions


async def find(world: World, timestamp: int, partition: int = 0) -> tuple[int, int, int]:
    (answer,) = await ask(world, (partition, timestamp))
    return answer.error_code, answer.offset, answer.timestamp


def timed(*timestamps: int, codec: int = 0) -> bytes:
    return batch_of(*[b"v"] * len(timestamps), timestamps=timestamps, codec=codec)


async def test_the_ends_of_a_partition(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {1: [batch_of(b"a", b"b")]})
    answers = await ask(world, (0, EARLIEST), (1, LATEST))
    assert [(each.partition_index, each.error_code, each.offset, each.timestamp) for each in answers] == [
        (0, 0, 0, -1),
        (1, 0, 2, -1),
    ]
    (topic,) = (await world.topics.find(["t"])).values()
    assert {each.leader_epoch for each in answers} == {topic.leader_epoch}


@pytest.mark.parametrize("codec", range(5))
async def test_the_first_record_at_or_after_a_time(world: World, codec: int) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(100, 110, codec=codec), timed(120, 150, 140, codec=codec)]})
    await world.produce(topic_id, {0: [timed(90, codec=codec), timed(200, codec=codec)]})
    expected: Sequence[tuple[int, tuple[int, int, int]]] = [
        (0, (0, 0, 100)),
        (100, (0, 0, 100)),
        (101, (0, 1, 110)),
        (115, (0, 2, 120)),
        (130, (0, 3, 150)),
        (150, (0, 3, 150)),
        (151, (0, 6, 200)),
        (200, (0, 6, 200)),
        (201, NOT_FOUND),
    ]
    for timestamp, answer in expected:
        assert await find(world, timestamp) == answer, timestamp


async def test_the_record_with_the_largest_timestamp(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(100), timed(120, 300, 300)]})
    await world.produce(topic_id, {0: [timed(250)]})
    assert await find(world, MAX_TIMESTAMP) == (0, 2, 300)
    assert await find(world, MAX_TIMESTAMP, partition=1) == NOT_FOUND


async def test_all_records_count_as_local_and_none_is_in_a_second_tier(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(100, 500), timed(200)]})
    await world.delete_records(topic_id, {0: 2})
    (answer,) = await ask(world, (0, EARLIEST_LOCAL), version=11)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, 2, -1)
    for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        (answer,) = await ask(world, (0, timestamp), version=11)
        assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, -1, -1, -1)
        (answer,) = await ask(world, (99, timestamp), version=11)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_empty_partition_has_no_record_of_any_time(world: World) -> None:
    await world.open()
    assert await find(world, 0) == NOT_FOUND


async def test_a_search_reads_on_until_it_finds_the_batch() -> None:
    async with opened(limits=GatewayLimits(read=ReadLimits(scan_bytes=100))) as world:
        topic_id = await world.open()
        values = [bytes(300)]
        await world.produce(topic_id, {0: [batch_of(*values, timestamps=[number]) for number in range(40)]})
        for timestamp in (0, 17, 39):
            assert await find(world, timestamp) == (0, timestamp, timestamp)


async def test_many_partitions_are_searched_in_one_request(world: World) -> None:
    topic_id = await world.open(partitions=40)
    await world.produce(topic_id, {number: [timed(number, 1_000)] for number in range(40)})
    answers = await ask(world, *((number, 500) for number in range(40)))
    assert [(each.offset, each.timestamp) for each in answers] == [(1, 1_000)] * 40


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_a_time_is_searched_among_the_records_that_were_not_deleted(world: World, is_compacted: bool) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(100, 500), timed(200, 210, 190)]})
    if is_compacted:
        await compact(world, topic_id, [0])
    await world.produce(topic_id, {0: [timed(300)]})
    await world.delete_records(topic_id, {0: 3})
    assert await find(world, EARLIEST) == (0, 3, -1)
    expected = [(0, (0, 3, 210)), (200, (0, 3, 210)), (211, (0, 5, 300)), (301, NOT_FOUND)]
    for timestamp, answer in expected:
        assert await find(world, timestamp) == answer, timestamp


async def test_in_a_log_without_records_no_time_is_found(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(100, 500)]})
    await world.delete_records(topic_id, {0: 2})
    assert [await find(world, timestamp) for timestamp in (EARLIEST, LATEST, 0, 100, MAX_TIMESTAMP)] == [
        (0, 2, -1),
        (0, 2, -1),
        NOT_FOUND,
        NOT_FOUND,
        NOT_FOUND,
    ]


async def test_a_search_does_not_read_deleted_records(world: World) -> None:
    topic_id = await world.open()
    large = bytes(100_000)
    await world.produce(topic_id, {0: [batch_of(large, timestamps=[number]) for number in range(40)]})
    await compact(world, topic_id, [0])
    await world.delete_records(topic_id, {0: 38})
    assert await find(world, 0) == (0, 38, 38)
    read_bytes = world.registry.get_sample_value("penstock_gateway_read_bytes_total", {"source": "store"})
    assert read_bytes is not None and read_bytes < 10 * len(large)


def test_a_batch_that_cannot_be_decoded_is_answered_with_its_first_record() -> None:
    limits, batch = ReadLimits(searched_records_max=3), timed(10, 20, 30)
    assert first_at(batch, 20, 30, limits) == (1, 20)
    assert first_at(batch[:-1] + b"\xff", 20, 30, limits) == (0, 30)
    assert first_at(batch, 31, 99, limits) == (0, 99)
    assert first_at(batch, 10, 30, limits, 1) == (1, 20)
    assert first_at(batch, 31, 99, limits, 1) is None
    assert first_at(batch[:-1] + b"\xff", 20, 30, limits, 2) == (2, 30)
    assert first_at(batch, 20, 30, ReadLimits(searched_records_max=2)) == (0, 30)


def test_a_batch_with_very_many_headers_is_answered_with_its_first_record() -> None:
    headers = (("h", None),) * 20
    batch = build_batch([Record(index, time_ms, b"key", headers=headers) for index, time_ms in enumerate((10, 20))])
    assert first_at(batch, 15, 20, ReadLimits(searched_headers_max=40)) == (1, 20)
    assert first_at(batch, 15, 20, ReadLimits(searched_headers_max=39)) == (0, 20)


def test_a_batch_that_expands_beyond_the_limit_is_not_decompressed() -> None:
    limits = ReadLimits(searched_bytes_max=1_000)
    small, large = (batch_of(bytes(size), b"", timestamps=[10, 20], codec=1) for size in (500, 1_500))
    assert first_at(small, 15, 20, limits) == (1, 20)
    assert first_at(large, 15, 20, limits) == (0, 20)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-4, 7), (-5, 8), (-6, 10), (-7, 11), (-(2**63), 11), (MAX_TIMESTAMP, 6)]
)
async def test_a_time_that_the_version_does_not_know_is_rejected(world: World, timestamp: int, version: int) -> None:
    await world.open()
    (answer,) = await ask(world, (0, timestamp), version=version)
    assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_a_partition_listed_twice_is_rejected_and_the_others_are_answered(world: World) -> None:
    await world.open()
    answers = await ask(world, (0, LATEST), (1, LATEST), (0, EARLIEST))
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]


async def test_unknown_partitions_and_topics_get_an_error_and_known_ones_do_not(world: World) -> None:
    await world.open()
    answers = await ask(world, (0, LATEST), (3, LATEST), (-1, LATEST))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in answers] == [0, unknown, unknown]
    (topic,) = (await world.list_offsets(request((0, LATEST), topic="absent"))).topics
    assert topic.partitions[0].error_code == unknown


async def test_another_leader_epoch_is_rejected(world: World) -> None:
    await world.open()
    (topic,) = (await world.list_offsets(request((0, LATEST), leader_epoch=1_000))).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("timestamp", [LATEST, MAX_TIMESTAMP, 10])
async def test_an_end_that_another_gateway_has_returned_never_moves_back(world: World, timestamp: int) -> None:
    topic_id = await world.open()
    world.sequencer.fall_behind()
    await world.produce(topic_id, {0: [timed(10)]}, announce=False)
    (answer,) = await ask(world, (0, timestamp), version=7)
    assert answer.offset == (1 if timestamp == LATEST else 0)


async def test_without_sequencers_a_client_gets_a_retriable_error(world: World) -> None:
    await world.open()
    await world.topics.find(["t"])
    world.sequencer.is_down = True
    (answer,) = await ask(world, (0, LATEST))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_missing_object_is_a_retriable_error(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(10)]}, stored=False)
    (answer,) = await ask(world, (0, 5))
    assert (answer.error_code, answer.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


class UnavailableStore(MemoryStore):
    """A store that takes objects, but cannot read them."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        raise Unavailable("the store does not answer")


async def test_a_store_that_does_not_answer_is_a_retriable_error() -> None:
    async with opened(store=UnavailableStore()) as world:
        topic_id = await world.open()
        await world.produce(topic_id, {0: [timed(10)]})
        (answer,) = await ask(world, (0, 5))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", range(1, 12))
async def test_every_version_can_be_encoded(world: World, version: int) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [timed(10, 20)]})
    response = await world.list_offsets(request((0, 15)), version)
    decoded = decode_response(2, version, b"".join(encode_response(2, version, response)))
    ((answer,),) = (topic.partitions for topic in decoded.topics)
    assert (answer.offset, answer.timestamp) == (1, 20)
