"""The clock and the limits of a record's timestamp, by the topic's configurations as in Kafka."""

from collections.abc import AsyncIterator
from typing import Any

import crc32c
import pytest

from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import (
    CRC_START,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    check_batch,
    decode_records,
    read_batch_header,
    stamp_batch,
)
from tests.unit.gateway.gateway_fakes import FakeFlusher, World, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask

VERSION = 9
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
NO_TIMESTAMP = -1

every_codec = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = new_world()
    made.sequencer.add_topic("appended", 1, **{"message.timestamp.type": "LogAppendTime", BEFORE: "1", AFTER: "1"})
    made.sequencer.add_topic("created", 1, **{"message.timestamp.type": "CreateTime"})
    made.sequencer.add_topic("limited", 1, **{BEFORE: "1000", AFTER: "10"})
    made.sequencer.add_topic("keyed", 1, **{AFTER: "10", "cleanup.policy": "compact"})
    async with with_flushes(made):
        yield made


@pytest.fixture
async def flusher(world: World) -> FakeFlusher:
    return await world.add_flusher("f1")


def batch(*timestamps: int, key: bytes | None = None, **options: Any) -> bytes:
    return build_batch([Record(index, time, key, b"value") for index, time in enumerate(timestamps)], **options)


async def produce(world: World, topic: str, records: bytes) -> Any:
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])
    response = await ask(world, 0, VERSION, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]))
    return response.responses[0].partition_responses[0]


@every_codec
async def test_a_batch_gets_its_time_of_arrival_and_a_new_crc(world: World, flusher: FakeFlusher, codec: int) -> None:
    sent = batch(50, 70, 60, codec=codec)
    now_ms = world.clock.now_ms()
    answer = await produce(world, "appended", sent)
    assert (answer.error_code, answer.log_append_time_ms) == (0, now_ms)
    request, stored = flusher.requests[0]
    header = read_batch_header(stored)
    assert header.crc == crc32c.crc32c(stored[CRC_START:])
    assert (header.base_timestamp, header.max_timestamp) == (50, now_ms)
    assert [record.timestamp for record in decode_records(stored)] == [now_ms] * 3
    assert [record.value for record in decode_records(stored)] == [b"value"] * 3
    meta = request.produces[0].batches[0].meta
    assert (meta.max_timestamp, meta.attributes) == (now_ms, codec | LOG_APPEND_TIME)


async def test_a_stamped_batch_is_a_copy_that_differs_only_in_crc_attributes_and_largest_timestamp() -> None:
    sent = batch(50, 70, producer_id=9, producer_epoch=2, base_sequence=40)
    before = bytes(sent)
    header = check_batch(sent, batch_bytes_max=10_000, zstd_allowed=True)
    assert not isinstance(header, ErrorCode)
    stamped, stamped_header = stamp_batch(sent, header, 1_234_567_890_123)
    assert sent == before
    assert stamped_header == read_batch_header(stamped)
    changed = {index for index, (old, new) in enumerate(zip(sent, stamped, strict=True)) if old != new}
    assert changed <= {*range(17, 21), 21, 22, *range(35, 43)}
    assert (stamped_header.producer_id, stamped_header.producer_epoch, stamped_header.base_sequence) == (9, 2, 40)


async def test_other_topics_keep_the_producers_bytes_and_return_no_append_time(
    world: World, flusher: FakeFlusher
) -> None:
    sent = batch(50, 70)
    answer = await produce(world, "created", sent)
    assert (answer.error_code, answer.log_append_time_ms) == (0, NO_TIMESTAMP)
    assert flusher.requests[0][1] == sent


async def test_a_batch_rejected_by_the_commit_returns_no_append_time(world: World, flusher: FakeFlusher) -> None:
    flusher.rejection = Rejection.OUT_OF_ORDER_SEQUENCE
    answer = await produce(world, "appended", batch(50))
    assert (answer.error_code, answer.log_append_time_ms) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NO_TIMESTAMP)


@pytest.mark.parametrize("topic", ["created", "appended"])
async def test_a_producer_may_not_send_log_append_time(world: World, flusher: FakeFlusher, topic: str) -> None:
    sent = batch(50)
    header = read_batch_header(sent)
    stamped, _ = stamp_batch(sent, header, 60)
    assert (await produce(world, topic, bytes(stamped))).error_code == ErrorCode.INVALID_TIMESTAMP
    assert flusher.produces == []


@every_codec
async def test_times_within_the_limits_are_stored(world: World, flusher: FakeFlusher, codec: int) -> None:
    now_ms = world.clock.now_ms()
    sent = batch(now_ms - 1000, now_ms + 10, now_ms, codec=codec)
    assert (await produce(world, "limited", sent)).error_code == 0
    assert flusher.requests[0][1] == sent


@every_codec
async def test_records_outside_the_limits_are_listed(world: World, flusher: FakeFlusher, codec: int) -> None:
    now_ms = world.clock.now_ms()
    answer = await produce(world, "limited", batch(now_ms, now_ms - 1001, now_ms + 11, now_ms, codec=codec))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    window = f"is out of range. The timestamp should be within [{now_ms - 1000}, {now_ms + 10}]"
    assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
        (1, f"Timestamp {now_ms - 1001} of message with offset 1 {window}"),
        (2, f"Timestamp {now_ms + 11} of message with offset 2 {window}"),
    ]
    assert flusher.produces == []


async def test_a_record_without_a_timestamp_is_within_all_limits(world: World, flusher: FakeFlusher) -> None:
    assert (await produce(world, "limited", batch(NO_TIMESTAMP))).error_code == 0


async def test_limits_do_not_apply_to_topics_with_log_append_time(world: World, flusher: FakeFlusher) -> None:
    assert (await produce(world, "appended", batch(5))).error_code == 0


async def test_a_compacted_topic_with_limits_checks_keys_and_timestamps(world: World, flusher: FakeFlusher) -> None:
    now_ms = world.clock.now_ms()
    assert (await produce(world, "keyed", batch(now_ms + 11, key=b"k"))).error_code == ErrorCode.INVALID_TIMESTAMP
    assert (await produce(world, "keyed", batch(now_ms))).error_code == ErrorCode.INVALID_RECORD
    assert (await produce(world, "keyed", batch(now_ms, key=b"k"))).error_code == 0


async def test_rejected_batches_are_counted(world: World, flusher: FakeFlusher) -> None:
    await produce(world, "limited", batch(5))
    assert world.metric("penstock_gateway_batches_refused_total", error="INVALID_TIMESTAMP") == 1
