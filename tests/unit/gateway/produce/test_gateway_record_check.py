"""Check of records: bad framing is rejected in every topic, a record without a key in a compacted one, as in Kafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import crc32c
import pytest

from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import BATCH_OVERHEAD, Record, build_batch, read_batch_header
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.produce.limits import ProduceLimits, RecordLimits
from penstock_gateway.produce.record_validation import RecordRules, RecordValidator
from tests.unit.gateway.gateway_fakes import FakeFlusher, World, new_client, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask

VERSION = 9
REASON = "Compacted topic cannot accept message without key in topic partition compacted-0"

every_codec = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened(RecordLimits()) as made:
        yield made


@contextlib.asynccontextmanager
async def opened(records: RecordLimits, **options: Any) -> AsyncIterator[World]:
    world = new_world(limits=GatewayLimits(produce=ProduceLimits(records=records)), **options)
    world.sequencer.add_topic("compacted", 2, **{"cleanup.policy": "delete,compact"})
    world.sequencer.add_topic("plain", 1)
    async with with_flushes(world):
        yield world


@pytest.fixture
async def flusher(world: World) -> FakeFlusher:
    return await world.add_flusher("f1")


def batch(*keys: bytes | None, **options: Any) -> bytes:
    return build_batch([Record(index, 5, key, b"value") for index, key in enumerate(keys)], **options)


async def produce(
    world: World, *records: bytes, topic: str = "compacted", version: int = VERSION, **options: Any
) -> Any:
    data = [PartitionProduceData(index, each) for index, each in enumerate(records)]
    request = ProduceRequest(
        acks=options.pop("acks", -1), timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=data)]
    )
    response = await ask(world, 0, version, request, **options)
    return response and response.responses[0].partition_responses


@every_codec
async def test_records_with_keys_are_stored(world: World, flusher: FakeFlusher, codec: int) -> None:
    data = batch(b"a", b"", b"c", codec=codec)
    (answer,) = await produce(world, data)
    assert (answer.error_code, answer.record_errors, answer.error_message) == (0, [], None)
    assert flusher.requests[0][1] == data


@every_codec
async def test_records_without_a_key_are_listed(world: World, flusher: FakeFlusher, codec: int) -> None:
    (answer,) = await produce(world, batch(b"a", None, b"c", None, codec=codec))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
        (1, REASON),
        (3, REASON),
    ]
    assert answer.error_message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{REASON}'), "
        f"RecordError(batchIndex=3, message='{REASON}')]"
    )
    assert flusher.produces == []


@pytest.mark.parametrize("version", [3, 7])
async def test_older_versions_get_the_error_code_alone(world: World, flusher: FakeFlusher, version: int) -> None:
    (answer,) = await produce(world, batch(None), version=version)
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_RECORD, [])


async def test_other_partitions_of_the_request_are_stored(world: World, flusher: FakeFlusher) -> None:
    good = batch(b"a")
    answers = await produce(world, batch(None), good)
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_RECORD, 0]
    assert flusher.requests[0][1] == good


async def test_other_topics_accept_records_without_a_key(world: World, flusher: FakeFlusher) -> None:
    (answer,) = await produce(world, batch(None), topic="plain")
    assert answer.error_code == 0


async def test_a_rejected_batch_does_not_use_up_its_producers_sequence(world: World, flusher: FakeFlusher) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    (rejected,) = await produce(world, batch(None, **producer))
    (stored,) = await produce(world, batch(b"a", **producer))
    assert (rejected.error_code, stored.error_code) == (ErrorCode.INVALID_RECORD, 0)
    assert [each.batches[0].meta.base_sequence for each in flusher.produces] == [0]


@every_codec
async def test_records_that_cannot_be_read_are_rejected(world: World, flusher: FakeFlusher, codec: int) -> None:
    records = [Record(0, 5, b"a", b"x"), Record(2, 5, b"b", b"x")]
    (answer,) = await produce(world, build_batch(records, codec=codec, last_offset_delta=1))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message.startswith("The records cannot be read")


async def test_a_batch_that_expands_beyond_the_limit_is_rejected() -> None:
    async with opened(RecordLimits(decompressed_at_once_max=50_000, decompressed_bytes_max=100_000)) as world:
        await world.add_flusher("f1")
        bomb = build_batch([Record(0, 5, b"a", bytes(200_000))], codec=4)
        assert len(bomb) < 1_000
        for topic in ("compacted", "plain"):
            (answer,) = await produce(world, bomb, topic=topic)
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE  # clients send smaller batches then


async def test_a_batch_of_too_many_records_is_rejected() -> None:
    async with opened(RecordLimits(records_max=2)) as world:
        await world.add_flusher("f1")
        (answer,) = await produce(world, batch(b"a", b"b", b"c"))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message == "The batch has 3 records; 2 are allowed"
        (answer,) = await produce(world, batch(b"a", b"b"))
        assert answer.error_code == 0


async def test_no_more_than_a_thousand_records_are_listed(world: World, flusher: FakeFlusher) -> None:
    (answer,) = await produce(world, batch(*[None] * 1_500))
    assert len(answer.record_errors) == 1_000
    assert "due to 1500 record errors in total" in answer.error_message


async def test_with_acks_0_the_connection_ends(world: World, flusher: FakeFlusher) -> None:
    with pytest.raises(CloseConnection, match="INVALID_RECORD for compacted-0"):
        await produce(world, batch(None), acks=0)


async def test_rejected_batches_are_counted(world: World, flusher: FakeFlusher) -> None:
    await produce(world, batch(None))
    assert world.metric("penstock_gateway_batches_refused_total", error="INVALID_RECORD") == 1


async def test_a_large_batch_is_checked_in_slices_and_holds_only_its_connection_back() -> None:
    async with opened(RecordLimits(records_at_once_max=10, slice_records=1)) as world:
        flusher = await world.add_flusher("f1")
        client = new_client()
        await produce(world, batch(b"a"))
        large = asyncio.create_task(produce(world, batch(*[b"k"] * 2_000), topic="plain", client=client))
        following = asyncio.create_task(produce(world, batch(b"a", b"b"), client=client))
        await produce(world, batch(b"a", b"b", b"c"))
        assert not large.done() and not following.done()
        await asyncio.gather(large, following)
        assert [each.batches[0].meta.record_count for each in flusher.produces] == [1, 3, 2_000, 2]


@pytest.mark.parametrize("at_once_max", [1, 1_000], ids=["large", "small"])
async def test_other_connections_continue_between_the_headers_of_one_record(at_once_max: int) -> None:
    many = build_batch([Record(0), Record(1, headers=(("h", None),) * 100_000)])
    validator = RecordValidator(RecordLimits(records_at_once_max=at_once_max))
    checked = asyncio.create_task(validator.validation_error("plain-0", many, read_batch_header(many), RecordRules()))
    turns = 0
    while not checked.done():
        await asyncio.sleep(0)
        turns += 1
    assert checked.result() is None
    assert turns >= 100


@every_codec
@pytest.mark.parametrize("at_once_max", [1, 1_000], ids=["large", "small"])
async def test_every_topic_rejects_a_batch_with_another_number_of_records(codec: int, at_once_max: int) -> None:
    async with opened(RecordLimits(records_at_once_max=at_once_max)) as world:
        flusher = await world.add_flusher("f1")
        good = build_batch([Record(0), Record(1)], codec=codec)
        (stored,) = await produce(world, good, topic="plain")
        assert stored.error_code == 0
        for count in (1, 3, 500_000, 2**31 - 1):
            bad = sealed(good, count)
            (answer,) = await produce(world, bad, topic="plain")
            assert answer.error_code == ErrorCode.INVALID_RECORD, count
        assert [data for _, data in flusher.requests] == [good]


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
async def test_every_topic_rejects_bytes_that_cannot_be_decompressed(
    world: World, flusher: FakeFlusher, codec: int
) -> None:
    for body in (b"", b"garbage" * 10):
        (answer,) = await produce(world, with_body(body, 3, codec), topic="plain")
        assert answer.error_code == ErrorCode.INVALID_RECORD
    assert flusher.produces == []


async def test_a_topic_may_switch_the_check_of_records_off(world: World, flusher: FakeFlusher) -> None:
    world.sequencer.add_topic("unchecked", 1, **{"penstock.check.records": "false"})
    (answer,) = await produce(world, with_body(b"garbage", 3, 0), topic="unchecked")
    assert answer.error_code == 0
    assert len(flusher.produces) == 1


async def test_small_compressed_batches_may_have_many_plain_bytes(world: World, flusher: FakeFlusher) -> None:
    (answer,) = await produce(world, build_batch([Record(0, value=bytes(2**20))], codec=4), topic="plain")
    assert answer.error_code == 0


def with_body(body: bytes, count: int, codec: int) -> bytes:
    """A batch with a right header and CRC, and these bytes as its records."""
    return sealed(build_batch([Record()], codec=codec)[:BATCH_OVERHEAD] + body, count)


def sealed(batch: bytes, count: int) -> bytes:
    """The batch with this number of records, and with the right length and CRC."""
    made = bytearray(batch)
    made[8:12] = (len(batch) - 12).to_bytes(4, "big")
    made[23:27] = (count - 1).to_bytes(4, "big")
    made[57:61] = count.to_bytes(4, "big")
    made[17:21] = crc32c.crc32c(memoryview(made)[21:]).to_bytes(4, "big")
    return bytes(made)
