"""Produce: invalid batches get Kafka's errors, and all others are committed in the order of their connection."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import place_batch
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.testkit.cancelling import turns
from tests.unit.gateway.gateway_fakes import FakeFlusher, World, new_client, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask, batch

VERSION = 9


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = new_world()
    world.sequencer.add_topic("t", 2)
    async with with_flushes(world):
        yield world


@pytest.fixture
async def flusher(world: World) -> FakeFlusher:
    return await world.add_flusher("f1")


def request(*partitions: tuple[str, int, bytes | None], acks: int = -1, timeout_ms: int = 30_000) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, index, records in partitions:
        topics.setdefault(topic, []).append(PartitionProduceData(index, records))
    data = [TopicProduceData(name, partition_data=each) for name, each in topics.items()]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data)


async def errors_of(world: World, asked: ProduceRequest, version: int = VERSION) -> list[int]:
    response = await ask(world, 0, version, asked)
    return [partition.error_code for topic in response.responses for partition in topic.partition_responses]


async def test_good_batches_are_committed_and_answered_with_their_offsets(world: World, flusher: FakeFlusher) -> None:
    first, second = batch(3), batch(2)
    response = await ask(world, 0, VERSION, request(("t", 0, first), ("t", 1, second)))
    answers = [
        (each.index, each.error_code, each.base_offset, each.log_start_offset)
        for each in response.responses[0].partition_responses
    ]
    assert answers == [(0, 0, 0, 0), (1, 0, 3, 0)]
    assert flusher.requests[0][1] == first + second


@pytest.mark.parametrize(
    ("topics", "is_express"), [(["x"], True), (["x", "y"], True), (["x", "t"], False), (["t"], False)]
)
async def test_a_request_takes_the_express_lane_if_all_its_topics_do(
    world: World, flusher: FakeFlusher, topics: list[str], is_express: bool
) -> None:
    """A request is atomic, so it is in one segment. No record of topic t may be in the landing store."""
    for name in ("x", "y"):
        world.sequencer.add_topic(name, **{"penstock.lane": "express"})
    assert await errors_of(world, request(*((name, 0, batch()) for name in topics))) == [0] * len(topics)
    assert [produced.is_express for produced in flusher.produces] == [is_express]


async def test_a_rejected_batch_does_not_keep_a_request_off_the_express_lane(
    world: World, flusher: FakeFlusher
) -> None:
    world.sequencer.add_topic("x", **{"penstock.lane": "express"})
    assert await errors_of(world, request(("x", 0, batch()), ("t", 9, batch()))) == [0, 3]
    assert [produced.is_express for produced in flusher.produces] == [True]


async def test_a_batch_goes_to_a_flusher_of_the_gateways_zone_not_of_the_clients(
    world: World, flusher: FakeFlusher
) -> None:
    far = await world.add_flusher("far", zone="z2")
    await ask(world, 0, VERSION, request(("t", 0, batch())), new_client("app,zone=z2"))
    assert (len(flusher.produces), len(far.produces)) == (1, 0)
    assert world.metric("penstock_gateway_zone_fallbacks_total") == 0


async def test_the_metadata_of_a_batch_comes_from_its_header(world: World, flusher: FakeFlusher) -> None:
    data = batch(3, producer_id=9, producer_epoch=2, base_sequence=40, codec=1)
    await ask(world, 0, VERSION, request(("t", 1, data)))
    (produced,) = flusher.produces[0].batches
    meta = produced.meta
    assert (produced.topic_id, produced.partition) == (world.sequencer.topics["t"].topic_id, 1)
    assert (meta.length, meta.record_count, meta.producer_id, meta.producer_epoch) == (len(data), 3, 9, 2)
    assert (meta.base_sequence, meta.attributes) == (40, 1)


async def test_the_bytes_of_accepted_batches_are_counted_by_topic(world: World, flusher: FakeFlusher) -> None:
    world.sequencer.add_topic("u")
    small, large = batch(1), batch(5)
    await errors_of(world, request(("t", 0, small), ("t", 1, large), ("u", 0, large), ("u", 9, small)))
    await errors_of(world, request(("t", 0, small)))
    metric = "penstock_gateway_topic_produced_bytes_total"
    assert world.metric(metric, topic="t") == 2 * len(small) + len(large)
    assert world.metric(metric, topic="u") == len(large), "a rejected batch was counted"
    assert world.metric("penstock_gateway_produced_bytes_total") == 2 * len(small) + 2 * len(large)


@pytest.mark.parametrize("version", range(3, 10))
async def test_every_version_with_batches_is_accepted(world: World, flusher: FakeFlusher, version: int) -> None:
    assert await errors_of(world, request(("t", 0, batch())), version) == [0]


@pytest.mark.parametrize("version", range(3))
async def test_versions_of_older_formats_are_rejected_with_their_error(
    world: World, flusher: FakeFlusher, version: int
) -> None:
    expected = [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
    assert await errors_of(world, request(("t", 0, batch())), version) == expected


def damaged(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def with_magic(data: bytes, magic: int) -> bytes:
    return data[:16] + bytes([magic]) + data[17:]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (damaged(batch(), 65), ErrorCode.CORRUPT_MESSAGE),
        (with_magic(batch(), 0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (with_magic(batch(), 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (b"garbage", ErrorCode.CORRUPT_MESSAGE),
        (batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0), 53),
    ],
)
async def test_a_bad_batch_is_rejected_and_the_good_ones_are_stored(
    world: World, flusher: FakeFlusher, records: bytes | None, error: int
) -> None:
    asked = request(("t", 0, records), ("t", 1, batch()))
    assert await errors_of(world, asked) == [error, 0]
    assert len(flusher.produces[0].batches) == 1


async def test_a_batch_over_the_topics_limit_is_too_large(world: World, flusher: FakeFlusher) -> None:
    world.sequencer.add_topic("small", 1, **{"max.message.bytes": "100"})
    assert await errors_of(world, request(("small", 0, batch(30)))) == [ErrorCode.MESSAGE_TOO_LARGE]


async def test_a_batch_that_no_message_can_carry_is_too_large(flusher: FakeFlusher) -> None:
    world = new_world(message_bytes_max=4_096)
    world.sequencer.add_topic("t", 1, **{"max.message.bytes": "1000000"})
    assert await errors_of(world, request(("t", 0, batch(500)))) == [ErrorCode.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("t", 2), ("t", -1), ("no/legal name", 0), ("", 0)])
async def test_an_unknown_partition_is_rejected(world: World, flusher: FakeFlusher, topic: str, index: int) -> None:
    assert await errors_of(world, request((topic, index, batch()))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_partition_that_was_just_added_is_found(world: World, flusher: FakeFlusher) -> None:
    await errors_of(world, request(("t", 0, batch())))
    world.sequencer.add_topic("t", 3)
    assert await errors_of(world, request(("t", 2, batch()))) == [0]


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_invalid_acks_are_rejected(world: World, flusher: FakeFlusher, acks: int) -> None:
    assert await errors_of(world, request(("t", 0, batch()), acks=acks)) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert flusher.produces == []


async def test_acks_0_gets_no_answer(world: World, flusher: FakeFlusher) -> None:
    assert await ask(world, 0, VERSION, request(("t", 0, batch()), acks=0)) is None
    assert len(flusher.produces) == 1


async def test_only_a_request_that_its_client_may_send_again_unnoticed_needs_a_confirmation(
    world: World, flusher: FakeFlusher
) -> None:
    idempotent = batch(producer_id=5, producer_epoch=0, base_sequence=0)
    for records, acks in ((batch(), 1), (batch(), -1), (batch(), 0), (idempotent, -1)):
        await ask(world, 0, VERSION, request(("t", 0, records), acks=acks))
    await turns()
    assert [produce.needs_confirmation for produce in flusher.produces] == [True, True, False, False]


@pytest.mark.parametrize(("version", "needed"), [(11, True), (12, False)], ids=["old protocol", "new protocol"])
async def test_batches_of_the_old_transaction_protocol_need_a_confirmation(
    world: World, flusher: FakeFlusher, version: int, needed: bool
) -> None:
    records = batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    asked = msgspec.structs.replace(request(("t", 0, records)), transactional_id="tx")
    await ask(world, 0, version, asked)
    assert [produce.needs_confirmation for produce in flusher.produces] == [needed]


async def test_acks_0_and_an_error_closes_the_connection(world: World, flusher: FakeFlusher) -> None:
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION for absent-0 produced with acks=0"):
        await ask(world, 0, VERSION, request(("absent", 0, batch()), acks=0))


@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (Rejection.OUT_OF_ORDER_SEQUENCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (Rejection.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Rejection.UNKNOWN_PRODUCER, ErrorCode.UNKNOWN_PRODUCER_ID),
        (Rejection.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_rejection_by_the_commit_is_answered_with_kafkas_code(
    world: World, flusher: FakeFlusher, rejection: Rejection, error: ErrorCode
) -> None:
    flusher.rejection = rejection
    assert await errors_of(world, request(("t", 0, batch()))) == [error]


async def test_too_many_producers_are_a_retriable_error_in_words_and_the_connection_stays(
    world: World, flusher: FakeFlusher
) -> None:
    client = new_client()
    flusher.rejection = Rejection.PRODUCERS_FULL
    answer = await ask(world, 0, VERSION, request(("t", 0, batch())), client)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "too many idempotent producers" in partition.error_message
    flusher.rejection = Rejection.NONE
    answer = await ask(world, 0, VERSION, request(("t", 0, batch())), client)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_a_topic_that_the_commit_did_not_find_leaves_the_cache(world: World, flusher: FakeFlusher) -> None:
    flusher.rejection = Rejection.UNKNOWN_TOPIC
    assert await errors_of(world, request(("t", 0, batch()))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.gateway.topics.cached("t") is None


@pytest.mark.parametrize("rejection", [Rejection.OUTCOME_UNKNOWN, Rejection.OVERLOADED])
async def test_a_request_that_was_not_decided_ends_the_connection_so_that_no_other_overtakes_its_retry(
    world: World, flusher: FakeFlusher, rejection: Rejection
) -> None:
    client = new_client()
    flusher.rejection = rejection
    with pytest.raises(CloseConnection, match="not decided"):
        await ask(world, 0, VERSION, request(("t", 0, batch())), client)
    flusher.rejection = Rejection.NONE
    with pytest.raises(CloseConnection, match="not decided"):
        await ask(world, 0, VERSION, request(("t", 0, batch())), client)
    assert len(flusher.produces) == 1


async def test_without_sequencers_an_unknown_topic_ends_the_connection(world: World, flusher: FakeFlusher) -> None:
    client = new_client()
    world.sequencer.is_down = True
    with pytest.raises(CloseConnection):
        await ask(world, 0, VERSION, request(("t", 0, batch())), client)
    world.sequencer.is_down = False
    with pytest.raises(CloseConnection, match="not decided"):
        await ask(world, 0, VERSION, request(("t", 0, batch())), client)
    assert flusher.produces == []


async def test_requests_are_handed_over_before_earlier_ones_are_answered(world: World, flusher: FakeFlusher) -> None:
    flusher.answers_at_once = False
    client = new_client()
    tasks = [
        asyncio.create_task(ask(world, 0, VERSION, request(("t", 0, batch(count))), client)) for count in (1, 2, 3)
    ]
    await turns()
    assert [produced.batches[0].meta.record_count for produced in flusher.produces] == [1, 2, 3]
    await flusher.answer_all()
    await asyncio.gather(*tasks)


async def test_a_topic_that_must_be_looked_up_holds_later_requests_of_its_connection_back(
    world: World, flusher: FakeFlusher
) -> None:
    """Otherwise later batches could overtake a producer's first batches, to a topic that is not cached."""
    world.sequencer.add_topic("known")
    await errors_of(world, request(("known", 0, batch())))
    world.sequencer.hold = asyncio.Event()
    client = new_client()
    first = asyncio.create_task(ask(world, 0, VERSION, request(("t", 0, batch(2))), client))
    second = asyncio.create_task(ask(world, 0, VERSION, request(("known", 0, batch(3))), client))
    other = asyncio.create_task(ask(world, 0, VERSION, request(("known", 0, batch(4)))))
    await other
    assert not first.done() and not second.done()
    world.sequencer.hold.set()
    await asyncio.gather(first, second)
    counts = [produced.batches[0].meta.record_count for produced in flusher.produces]
    assert counts == [1, 4, 2, 3]


async def test_the_flushers_throttle_reaches_the_answer(world: World, flusher: FakeFlusher) -> None:
    flusher.throttle_ms = 55
    response: Any = await ask(world, 0, VERSION, request(("t", 0, batch())))
    assert response.throttle_time_ms == 55


@pytest.mark.parametrize(("base_offset", "error"), [(0, ErrorCode.NONE), (12_345, ErrorCode.INVALID_RECORD)])
async def test_a_leader_epoch_in_a_batch_is_ignored_and_a_base_offset_is_rejected(
    world: World, flusher: FakeFlusher, base_offset: int, error: ErrorCode
) -> None:
    data = bytearray(batch())
    place_batch(data, 0, base_offset, 7)
    assert await errors_of(world, request(("t", 0, bytes(data)))) == [error]


async def test_of_a_partition_named_several_times_the_last_batch_is_stored_and_answered_once(
    world: World, flusher: FakeFlusher
) -> None:
    """Kafka puts the partitions of a request into a map."""
    last = batch(3)
    data = [
        TopicProduceData("t", partition_data=[PartitionProduceData(0, batch()), PartitionProduceData(1, batch())]),
        TopicProduceData("none", partition_data=[PartitionProduceData(0, batch())]),
        TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(2)), PartitionProduceData(0, last)]),
    ]
    response = await ask(world, 0, VERSION, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data))
    answers = [
        (topic.name, each.index, each.error_code) for topic in response.responses for each in topic.partition_responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == [("t", 0, 0), ("t", 1, 0), ("none", 0, unknown)]
    assert [each.meta.record_count for each in flusher.produces[0].batches] == [3, 1]
    assert flusher.requests[0][1][: len(last)] == last


async def test_a_produce_of_very_many_partitions_lets_other_requests_run(world: World, flusher: FakeFlusher) -> None:
    data = [PartitionProduceData(number, b"") for number in range(20_000)]
    large = ProduceRequest(acks=-1, topic_data=[TopicProduceData("t", partition_data=data)])
    task = asyncio.create_task(errors_of(world, large))
    answered = 0
    while not task.done():
        answered += len(await errors_of(world, request(("none", 0, batch()))))
    assert len(await task) == 20_000
    assert answered > 20
