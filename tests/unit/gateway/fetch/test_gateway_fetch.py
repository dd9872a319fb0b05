"""Fetch answers as Kafka does: waits, budgets, whole batches, a fair order, and errors that clients retry."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.contracts.commands import Tick
from penstock.kafkawire.api import decode_response, encode_response
from penstock.kafkawire.api.fetch import FetchRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import batches
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import segment_key
from penstock_gateway.fetch.limits import FetchLimits, ReadLimits
from penstock_gateway.parts import GatewayLimits
from tests.testkit.cancelling import turns
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import (
    START_MS,
    UNSENT_BYTES_MAX,
    World,
    asking,
    batch_of,
    partitions_of,
    values_of,
)

FOR_EVER_MS = 60_000
MIB = 1024 * 1024


@pytest.fixture(params=[False, True], ids=["store by the network", "store with local reads"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with opened(store=MemoryStore(has_local_reads=request.param)) as made:
        yield made


@contextlib.asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    yield made
    assert made.tail.watched_partitions == 0, "a fetch left a waiter behind"
    assert made.log_reader.held_bytes == 0, "a fetch kept bytes of the budget"
    await made.close()


async def test_records_come_with_their_offsets_and_the_partitions_ends(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b"), batch_of(b"c")]})
    await world.produce(topic_id, {0: [batch_of(b"d")], 1: [batch_of(b"x")]})
    answers = partitions_of(await world.fetch(asking({0: 0, 1: 0, 2: 0})))
    assert values_of(answers[0]) == {0: b"a", 1: b"b", 2: b"c", 3: b"d"}
    assert values_of(answers[1]) == {0: b"x"}
    assert values_of(answers[2]) == {}
    assert [(each.high_watermark, each.last_stable_offset, each.log_start_offset) for each in answers.values()] == [
        (4, 4, 0),
        (1, 1, 0),
        (0, 0, 0),
    ]
    assert {each.error_code for each in answers.values()} == {0}


async def test_batches_carry_the_leader_epoch_of_the_metadata(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    ((_, header),) = batches(bytes(answer.records))  # type: ignore[arg-type]
    (topic,) = (await world.topics.find(["t"])).values()
    assert header.partition_leader_epoch == topic.leader_epoch


async def test_a_fetch_from_the_middle_of_a_batch_gets_the_whole_batch(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b"), batch_of(b"c", b"d", b"e"), batch_of(b"f")]})
    answer = partitions_of(await world.fetch(asking({0: 3})))[0]
    assert values_of(answer) == {2: b"c", 3: b"d", 4: b"e", 5: b"f"}


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_can_be_encoded(world: World, version: int) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    response = await world.fetch(asking({0: 0, 7: 0}, isolation_level=1), version)
    decoded = decode_response(1, version, b"".join(encode_response(1, version, response)))
    answers = partitions_of(decoded)
    assert values_of(answers[0]) == {0: b"a"}
    assert answers[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_end_of_the_log_is_answered_from_the_tail_index_once_it_is_known(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await world.fetch(asking({0: 1, 1: 0}))
    asked = world.sequencer.asked.count("plan")
    for offset in range(1, 5):
        await world.produce(topic_id, {0: [batch_of(b"v%d" % offset)]})
        answer = partitions_of(await world.fetch(asking({0: offset, 1: 0})))[0]
        assert values_of(answer) == {offset: b"v%d" % offset}
    assert world.sequencer.asked.count("plan") == asked == 1


async def test_all_partitions_that_the_tail_does_not_know_are_one_plan(world: World) -> None:
    topic_id = await world.open(partitions=20)
    await world.produce(topic_id, {number: [batch_of(b"a")] for number in range(20)})
    await world.fetch(asking(dict.fromkeys(range(20), 0)))
    assert world.sequencer.asked.count("plan") == 1


# Waiting.


async def test_an_empty_fetch_waits_for_max_wait_ms(world: World) -> None:
    await world.open()
    began_s = asyncio.get_running_loop().time()
    answer = partitions_of(await world.fetch(asking({0: 0}, max_wait_ms=30)))[0]
    assert asyncio.get_running_loop().time() - began_s >= 0.03
    assert (answer.error_code, values_of(answer)) == (0, {})


async def test_a_request_that_keeps_much_memory_waits_only_shortly() -> None:
    async with opened(limits=GatewayLimits(fetch=FetchLimits(large_wait_ms_max=10))) as world:
        await world.open()
        world.client.has_large_request = True
        answer = partitions_of(await world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))[0]
        assert (answer.error_code, values_of(answer)) == (0, {})


async def test_a_waiting_fetch_is_answered_when_records_come(world: World) -> None:
    topic_id = await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0, 1: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 2)
    await world.produce(topic_id, {1: [batch_of(b"a")]})
    assert values_of(partitions_of(await waiting)[1]) == {0: b"a"}


async def test_only_fetches_that_waited_record_how_long_after_new_data_they_were_answered(world: World) -> None:
    topic_id = await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await waiting
    await world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS))
    await world.fetch(asking({0: 1}, max_wait_ms=1))
    sample = world.registry.get_sample_value
    assert sample("penstock_gateway_tail_answer_seconds_count") == 1
    assert sample("penstock_gateway_announced_seconds_count") == 1


async def test_new_data_of_other_partitions_does_not_answer_a_waiting_fetch(world: World) -> None:
    topic_id = await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    asked = len(world.sequencer.asked)
    await world.produce(topic_id, {1: [batch_of(b"a")]})
    assert not waiting.done()
    assert len(world.sequencer.asked) == asked
    await world.produce(topic_id, {0: [batch_of(b"b")]})
    assert values_of(partitions_of(await waiting)[0]) == {0: b"b"}


async def test_min_bytes_are_waited_for(world: World) -> None:
    topic_id = await world.open()
    batch = batch_of(bytes(1_000))
    request = asking({0: 0, 1: 0}, max_wait_ms=FOR_EVER_MS, min_bytes=3 * len(batch))
    waiting = asyncio.create_task(world.fetch(request))
    await until(lambda: world.tail.watched_partitions == 2)
    for partition in (0, 1):
        await world.produce(topic_id, {partition: [batch]})
        await until(lambda: world.tail.watched_partitions == 2)
        assert not waiting.done()
    await world.produce(topic_id, {0: [batch]})
    answers = partitions_of(await waiting)
    assert [len(values_of(answers[number])) for number in (0, 1)] == [2, 1]


async def test_the_readable_records_are_answered_when_min_bytes_do_not_come_in_time(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    answer = partitions_of(await world.fetch(asking({0: 0}, max_wait_ms=20, min_bytes=MIB)))[0]
    assert values_of(answer) == {0: b"a"}


async def test_min_bytes_beyond_max_bytes_are_not_waited_for(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(bytes(500))]})
    request = asking({0: 0}, max_wait_ms=FOR_EVER_MS, min_bytes=MIB, max_bytes=100)
    assert len(values_of(partitions_of(await world.fetch(request))[0])) == 1


async def test_a_half_read_extent_counts_for_its_unread_part_only(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(bytes(1_000))] * 10})
    waiting = asyncio.create_task(world.fetch(asking({0: 9}, max_wait_ms=FOR_EVER_MS, min_bytes=2_000)))
    await until(lambda: world.tail.watched_partitions == 1)
    await until(lambda: "plan" in world.sequencer.asked)
    assert not waiting.done()
    await world.produce(topic_id, {0: [batch_of(bytes(1_000))]})
    assert list(values_of(partitions_of(await waiting)[0])) == [9, 10]


async def test_zero_min_bytes_wait_for_nothing(world: World) -> None:
    await world.open()
    answer = partitions_of(await world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS, min_bytes=0)))[0]
    assert answer.error_code == 0


async def test_a_fetch_of_nothing_is_answered_at_once(world: World) -> None:
    await world.open()
    assert (await world.fetch(FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=1))).responses == []


async def test_an_error_of_one_partition_is_answered_at_once(world: World) -> None:
    await world.open()
    answers = partitions_of(await world.fetch(asking({0: 0, 99: 0}, max_wait_ms=FOR_EVER_MS)))
    assert [answers[number].error_code for number in (0, 99)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_cancelled_fetch_leaves_no_waiter_behind(world: World) -> None:
    await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0, 1: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 2)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert world.tail.watched_partitions == 0


async def test_a_deleted_topic_ends_the_waiting(world: World) -> None:
    await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    await world.delete("t")
    assert partitions_of(await waiting)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_announcement_that_never_comes_does_not_keep_records_from_a_waiting_fetch(world: World) -> None:
    topic_id = await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    await world.produce(topic_id, {0: [batch_of(b"a")]}, announce=False)
    await world.commit([Tick(START_MS)])
    assert values_of(partitions_of(await waiting)[0]) == {0: b"a"}


async def test_records_that_come_while_the_plan_is_in_flight_are_answered(world: World) -> None:
    topic_id = await world.open()
    await world.topics.find(["t"])
    world.sequencer.gate.clear()
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: "plan" in world.sequencer.asked)
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    world.sequencer.gate.set()
    assert values_of(partitions_of(await waiting)[0]) == {0: b"a"}


async def test_a_client_that_is_leaving_is_not_kept_waiting(world: World) -> None:
    await world.open()
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    world.client.is_leaving = True
    world.tail.wake_all()
    assert partitions_of(await waiting)[0].error_code == 0


# Budgets and order.


async def test_partition_max_bytes_bound_each_partition(world: World) -> None:
    topic_id = await world.open()
    batch = batch_of(bytes(1_000))
    await world.produce(topic_id, {0: [batch] * 5, 1: [batch] * 5})
    answers = partitions_of(await world.fetch(asking({0: 0, 1: 0}, partition_max_bytes=2 * len(batch) + 10)))
    assert [len(values_of(answers[number])) for number in (0, 1)] == [2, 2]


async def test_max_bytes_bound_the_answer(world: World) -> None:
    topic_id = await world.open()
    batch = batch_of(bytes(1_000))
    await world.produce(topic_id, {number: [batch] * 5 for number in range(3)})
    answers = partitions_of(await world.fetch(asking(dict.fromkeys(range(3), 0), max_bytes=7 * len(batch))))
    assert sorted(len(values_of(answers[number])) for number in range(3)) == [0, 2, 5]


@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}, {"max_bytes": -1}])
async def test_exactly_one_batch_may_exceed_the_budget(world: World, limits: dict[str, int]) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {number: [batch_of(bytes(30_000))] * 2 for number in range(3)})
    request = asking(dict.fromkeys(range(3), 0), **limits)  # type: ignore[arg-type]
    answers = partitions_of(await world.fetch(request))
    assert sorted(len(values_of(answers[number])) for number in range(3)) == [0, 0, 1]


async def test_each_partition_is_served_first_in_some_fetches(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {number: [batch_of(bytes(1_000))] for number in range(3)})
    served = []
    for _ in range(6):
        answers = partitions_of(await world.fetch(asking(dict.fromkeys(range(3), 0), max_bytes=1)))
        served += [number for number in range(3) if values_of(answers[number])]
    assert served == [0, 1, 2, 0, 1, 2]


async def test_the_first_partition_with_data_gets_its_batch_when_those_before_are_empty(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {2: [batch_of(bytes(1_000))]})
    answers = partitions_of(await world.fetch(asking(dict.fromkeys(range(3), 0), max_bytes=1)))
    assert len(values_of(answers[2])) == 1


@pytest.mark.parametrize("known", [False, True])
async def test_a_consumer_reads_everything_once_and_in_order(world: World, known: bool) -> None:
    topic_id = await world.open()
    if known:
        await world.fetch(asking({0: 0}))
    expected = {}
    for number in range(30):
        values = [b"%d-%d" % (number, record) for record in range(1 + number % 4)]
        expected |= {len(expected) + index: value for index, value in enumerate(values)}
        more = [batch_of(b"filler")] if number % 3 == 0 else []
        await world.produce(topic_id, {0: [batch_of(*values)], 1: more} if more else {0: [batch_of(*values)]})
    got: dict[int, bytes | None] = {}
    while len(got) < len(expected):
        answer = partitions_of(await world.fetch(asking({0: len(got)}, partition_max_bytes=500)))[0]
        fresh = values_of(answer)
        assert fresh
        assert not got.keys() & fresh.keys()
        got |= fresh
    assert got == expected


# Errors.


async def test_offsets_outside_of_the_log_are_out_of_range(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    answers = partitions_of(await world.fetch(asking({0: 2, 1: -1}, max_wait_ms=FOR_EVER_MS)))
    assert {each.error_code for each in answers.values()} == {ErrorCode.OFFSET_OUT_OF_RANGE}
    assert {each.high_watermark for each in answers.values()} == {-1}


@pytest.mark.parametrize("known", [False, True])
async def test_deleted_records_are_out_of_range_and_the_rest_is_read(world: World, known: bool) -> None:
    topic_id = await world.open()
    if known:
        await world.fetch(asking({0: 0}))
    await world.produce(topic_id, {0: [batch_of(b"a", b"b"), batch_of(b"c", b"d")]})
    await world.produce(topic_id, {0: [batch_of(b"e")]})
    await world.delete_records(topic_id, {0: 3})
    for offset in (0, 2):
        answer = partitions_of(await world.fetch(asking({0: offset})))[0]
        assert (answer.error_code, answer.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    answer = partitions_of(await world.fetch(asking({0: 3})))[0]
    assert (answer.error_code, answer.log_start_offset) == (0, 3)
    assert values_of(answer) == {2: b"c", 3: b"d", 4: b"e"}  # the whole batch; clients skip what they did not ask for


async def test_a_fetch_that_waits_below_a_new_log_start_gets_an_error_at_once(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b")]})
    waiting = asyncio.create_task(world.fetch(asking({0: 1}, max_wait_ms=FOR_EVER_MS, min_bytes=MIB)))
    await until(lambda: world.tail.watched_partitions)
    await world.delete_records(topic_id, {0: 2})
    assert partitions_of(await waiting)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_fetch_at_the_end_goes_on_waiting_when_all_records_before_are_deleted(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b")]})
    waiting = asyncio.create_task(world.fetch(asking({0: 2}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions)
    await world.delete_records(topic_id, {0: 2})
    await world.produce(topic_id, {0: [batch_of(b"c")]})
    answer = partitions_of(await waiting)[0]
    assert (values_of(answer), answer.log_start_offset) == ({2: b"c"}, 2)


async def test_a_fetch_whose_objects_are_deleted_after_its_plan_is_out_of_range_and_not_a_storage_error(
    world: World,
) -> None:
    topic_id = await world.open()
    gone = await world.produce(topic_id, {0: [batch_of(b"a", b"b")]})
    await world.produce(topic_id, {0: [batch_of(b"c")]})
    await world.fetch(asking({0: 2}))
    assert world.tail.lookup((topic_id, 0), 0, 1) is None
    assert values_of(partitions_of(await world.fetch(asking({0: 0})))[0]) == {0: b"a", 1: b"b", 2: b"c"}
    # This gateway got no announcement of the deletion, and still has the extents.
    await world.delete_records(topic_id, {0: 2}, announce=False)
    await world.store.delete([segment_key("", "c", 0, gone.segment_id)])
    answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    assert (answer.error_code, answer.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    assert values_of(partitions_of(await world.fetch(asking({0: 2})))[0]) == {2: b"c"}


async def test_a_client_ahead_of_a_slow_replica_is_not_out_of_range(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    world.sequencer.fall_behind()
    await world.produce(topic_id, {0: [batch_of(b"b")]}, announce=False)
    await world.produce(topic_id, {0: [batch_of(b"c")]}, announce=False)
    answer = partitions_of(await world.fetch(asking({0: 2})))[0]
    assert (answer.error_code, values_of(answer)) == (0, {2: b"c"})


async def test_a_topic_that_does_not_exist_is_unknown(world: World) -> None:
    await world.open()
    answer = partitions_of(await world.fetch(asking({0: 0}, topic="absent", max_wait_ms=FOR_EVER_MS)))[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_unknown_partition_has_no_aborted_transactions_and_an_unread_one_no_list_of_them(world: World) -> None:
    await world.open()
    answers = partitions_of(await world.fetch(asking({0: 9, 7: 0}, isolation_level=1)))
    assert [(each.error_code, each.aborted_transactions) for each in (answers[0], answers[7])] == [
        (ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


async def test_a_topic_created_after_a_deletion_is_read_from_its_own_beginning(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"old")]})
    await world.fetch(asking({0: 1}))
    await world.delete("t")
    fresh = await world.create("t2")
    await world.produce(fresh, {0: [batch_of(b"new")]})
    assert values_of(partitions_of(await world.fetch(asking({0: 0}, topic="t2")))[0]) == {0: b"new"}


@pytest.mark.parametrize(("step", "error"), [(1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.FENCED_LEADER_EPOCH)])
async def test_another_leader_epoch_is_rejected(world: World, step: int, error: ErrorCode) -> None:
    await world.open()
    (topic,) = (await world.topics.find(["t"])).values()
    wrong = asking({0: 0}, leader_epoch=topic.leader_epoch + step, max_wait_ms=FOR_EVER_MS)
    assert partitions_of(await world.fetch(wrong))[0].error_code == error
    right = asking({0: 0}, leader_epoch=topic.leader_epoch)
    assert partitions_of(await world.fetch(right))[0].error_code == 0


async def test_a_reader_of_committed_records_gets_a_list_of_aborted_transactions(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    committed = partitions_of(await world.fetch(asking({0: 0}, isolation_level=1)))[0]
    assert (committed.aborted_transactions, values_of(committed)) == ([], {0: b"a"})
    assert partitions_of(await world.fetch(asking({0: 0})))[0].aborted_transactions is None


async def test_without_sequencers_a_client_gets_a_retriable_error_and_the_tail_index_is_still_served(
    world: World,
) -> None:
    topic_id = await world.open()
    await world.fetch(asking({0: 0}))
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    world.sequencer.is_down = True
    answers = partitions_of(await world.fetch(asking({0: 0, 1: 0}, max_wait_ms=FOR_EVER_MS)))
    assert values_of(answers[0]) == {0: b"a"}
    assert answers[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.topics.remove_all()
    assert partitions_of(await world.fetch(asking({0: 0})))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_missing_object_is_a_retriable_error_and_its_extent_is_planned_again(world: World) -> None:
    topic_id = await world.open()
    await world.fetch(asking({0: 0}))
    await world.produce(topic_id, {0: [batch_of(b"a")], 1: [batch_of(b"b")]}, stored=False)
    asked = world.sequencer.asked.count("plan")
    for _ in range(2):
        answer = partitions_of(await world.fetch(asking({0: 0})))[0]
        assert (answer.error_code, answer.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    # Each fetch plans again after its read failed. The second fetch also began with a plan.
    assert world.sequencer.asked.count("plan") == asked + 3


async def test_damaged_bytes_are_an_error_and_never_records(world: World) -> None:
    topic_id = await world.open()
    ref = await world.produce(topic_id, {0: [batch_of(b"a")], 1: [batch_of(b"b")]}, stored=False)
    await world.store.put(segment_key("", "c", 0, ref.segment_id), [bytes(ref.size_bytes)])
    answers = partitions_of(await world.fetch(asking({0: 0, 1: 0})))
    assert {each.error_code for each in answers.values()} == {ErrorCode.KAFKA_STORAGE_ERROR}


async def test_while_clients_leave_too_many_answers_a_fetch_waits_for_memory(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    world.gateway.response_memory.change(UNSENT_BYTES_MAX)
    fetching = asyncio.create_task(world.fetch(asking({0: 0})))
    await turns(200)  # with memory it ends within a third of them
    assert world.log_reader.held_bytes == 0 and not fetching.done()
    world.gateway.response_memory.change(-1)
    assert values_of(partitions_of(await fetching)[0]) == {0: b"a"}


async def test_without_memory_in_time_a_fetch_gets_no_records_and_no_error() -> None:
    async with opened(limits=GatewayLimits(read=ReadLimits(memory_wait_s=0.01))) as world:
        topic_id = await world.open()
        await world.produce(topic_id, {0: [batch_of(b"a")]})
        world.gateway.response_memory.change(UNSENT_BYTES_MAX)
        answer = partitions_of(await world.fetch(asking({0: 0})))[0]
        assert (answer.error_code, answer.high_watermark, values_of(answer)) == (0, 1, {})
