"""Flush messages are checked, weighed and reassembled on arrival, and buffers close when they are due."""

import asyncio

import msgspec
import pytest

from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import encode_with_payload
from penstock.contracts.commands import SegmentCommitted
from penstock.contracts.messages import FlushBatch, FlushProduce, FlushRequest
from penstock.contracts.rejections import Rejection
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time
from tests.unit.flusher.flusher_fakes import (
    MIB,
    FakeInbound,
    HeldStore,
    LoggingSequencers,
    Rig,
    flush_message,
    meta,
    produce,
    until,
)

OVERLOADED = Rejection.OVERLOADED


async def test_a_full_buffer_is_flushed_at_once() -> None:
    async with Rig(bytes_max=1_000) as rig:
        message = await rig.send(produce(1, 1_000))
        assert (await message.reply()).results[0][0].rejection == 0
    assert rig.metric("closed_buffers_total", reason="size") == 1


@in_virtual_time
async def test_a_quiet_buffer_is_flushed_long_before_its_timer() -> None:
    async with Rig(clock=VirtualClock(), quiet_s=0.003) as rig:
        message = await rig.send(produce(1))
        await message.reply()
    assert rig.metric("closed_buffers_total", reason="quiet") == 1


@in_virtual_time
async def test_requests_that_come_during_a_commit_are_flushed_together_after_it() -> None:
    sequencers = LoggingSequencers(held=True)
    async with Rig(clock=VirtualClock(), quiet_s=0.003, sequencers=sequencers) as rig:
        messages = [await rig.send(produce(0))]
        while not sequencers.requests:
            await asyncio.sleep(0.001)
        messages += [await rig.send(produce(number)) for number in range(1, 4)]
        await asyncio.sleep(0.01)  # longer than quiet
        assert len(sequencers.requests) == 1
        for _ in range(2):
            sequencers.replies.put_nowait(None)
        for message in messages:
            await message.reply()
    assert [[len(commit.runs[0].batches) for commit in request] for request in sequencers.requests] == [[1], [3]]


@in_virtual_time
async def test_a_buffer_that_is_never_quiet_is_flushed_by_its_timer() -> None:
    async with Rig(clock=VirtualClock(), interval_s=0.02) as rig:
        message = await rig.send(produce(1))
        await message.reply()
    assert rig.metric("closed_buffers_total", reason="timer") == 1


@in_virtual_time
async def test_the_waits_of_segments_are_measured() -> None:
    store = HeldStore(held=True)
    async with Rig(clock=VirtualClock(), store=store, interval_s=1.0, upload_parallel_max=2) as rig:
        for number in range(3):  # closed after 1, 2 and 3 seconds
            await rig.send(produce(number))
            await asyncio.sleep(1.0001)
        await asyncio.sleep(1.0)
        store.ends[1].set_result(None)  # at 4 seconds, when the third can begin
        await asyncio.sleep(2.0)
        store.ends[0].set_result(None)  # at 6 seconds
        store.ends[2].set_result(None)
        await rig.flushes.until_idle()
    waits = {name: rig.metric("wait_seconds_sum", **{"for": name}) for name in ("flush", "upload", "turn")}
    assert waits == pytest.approx({"flush": 3.0, "upload": 1.0, "turn": 2.0}, abs=0.01)


async def test_the_metric_of_held_bytes_falls_with_the_last_answer() -> None:
    async with Rig() as rig:
        message = await rig.send(produce(1))
        assert rig.metric("held_bytes") > 0
        rig.close_buffer()
        await message.reply()
        assert rig.metric("held_bytes") == 0


async def test_one_message_may_span_two_segments_and_is_answered_once() -> None:
    async with Rig(bytes_max=1_000) as rig:
        message = await rig.send(produce(1, 600), produce(2, 600), produce(3, 100))
        await until(lambda: len(rig.sequencers.requests) == 1)
        assert not message.replied.done()
        rig.close_buffer()
        assert [results[0].base_offset for results in (await message.reply()).results] == [0, 1, 2]


async def test_parts_of_a_request_join_in_one_segment_though_a_buffer_closes_between_them() -> None:
    async with Rig(bytes_max=1_000) as rig:
        first = await rig.send(produce(1, 800, part=0, parts=2))
        others = [await rig.send(produce(number, size), gateway="g2") for number, size in ((1, 930), (2, 70))]
        for message in others:
            await message.reply()
        assert not first.replied.done()
        second = await rig.send(produce(1, 100, part=1, parts=2))
        rig.close_buffer()
        offsets = [(await message.reply()).results[0][0].base_offset for message in (*others, first, second)]
    assert offsets == [0, 1, 2, 3]
    commits = [commit for request in rig.sequencers.requests for commit in request]
    assert [[batch.length for batch in commit.runs[0].batches] for commit in commits] == [[930, 70], [800, 100]]


@in_virtual_time
async def test_a_request_whose_next_part_never_comes_is_rejected_and_others_keep_their_order() -> None:
    async with Rig(clock=VirtualClock()) as rig:
        incomplete = await rig.send(produce(1, part=0, parts=2))
        complete = [await rig.send(produce(number), gateway="g2") for number in (1, 2)]
        await asyncio.sleep(4.9)
        assert not incomplete.replied.done()
        assert (await incomplete.reply()).results[0][0].rejection == OVERLOADED
        rig.close_buffer()
        assert [(await message.reply()).results[0][0].base_offset for message in complete] == [0, 1]
    ((commit,),) = rig.sequencers.requests
    assert len(commit.runs[0].batches) == 2


async def test_a_lost_part_rejects_the_rest_of_its_request() -> None:
    async with Rig() as rig:
        messages = [await rig.send(produce(1, part=part, parts=4)) for part in (0, 2, 3)]
        assert [(await message.reply()).results[0][0].rejection for message in messages] == [OVERLOADED] * 3
        assert rig.budget.held_bytes == 0


async def test_a_message_above_the_budget_is_rejected_at_once_and_nothing_of_it_is_stored() -> None:
    async with Rig(budget_bytes=10_000) as rig:
        accepted = await rig.send(produce(1, 8_000))
        rejected = await rig.send(produce(2, 500, 500), produce(3))
        results = (await rejected.reply()).results
        assert [[result.rejection for result in each] for each in results] == [[OVERLOADED] * 2, [OVERLOADED]]
        rig.close_buffer()
        assert (await accepted.reply()).results[0][0].rejection == 0
        again = await rig.send_and_close(produce(2, 500, 500))
        assert (await again.reply()).results[0][0].rejection == 0
    assert len(rig.sequencers.requests) == 2


async def test_a_part_above_the_budget_rejects_the_parts_before_and_after_it() -> None:
    async with Rig(budget_bytes=10_000) as rig:
        messages = [await rig.send(produce(1, 4_500, part=part, parts=3)) for part in range(3)]
        assert [(await message.reply()).results[0][0].rejection for message in messages] == [OVERLOADED] * 3
        assert rig.budget.held_bytes == 0


async def test_bytes_uploading_and_committing_count_against_the_budget() -> None:
    async with Rig(budget_bytes=10_000, sequencers=LoggingSequencers(held=True)) as rig:
        first = await rig.send_and_close(produce(1, 8_000))
        await until(lambda: rig.sequencers.requests)
        assert (await (await rig.send(produce(2, 8_000))).reply()).results[0][0].rejection == OVERLOADED
        rig.sequencers.replies.put_nowait(None)
        assert (await first.reply()).throttle_ms > 0
        await rig.flushes.until_idle()
        assert rig.budget.held_bytes == 0


async def test_replies_ask_for_no_pause_while_the_budget_is_free() -> None:
    async with Rig() as rig:
        assert (await (await rig.send_and_close(produce(1))).reply()).throttle_ms == 0


def _with(**changes: object) -> FlushProduce:
    batch = FlushBatch(bytes(16), 0, meta(100))
    return FlushProduce(1, 0, 1, [msgspec.structs.replace(batch, **changes)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x00\x00\x00\x05abc",
        encode_with_payload(FlushRequest("g", []), []),
        encode_with_payload(FlushRequest("g", [produce(1, 100)]), [bytes(99)]),
        encode_with_payload(FlushRequest("g", [produce(1, 100)]), [bytes(101)]),
        encode_with_payload(FlushRequest("g", [produce(1, 60)]), [bytes(60)]),
        encode_with_payload(FlushRequest("g", [produce(1, -100)]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [FlushProduce(1, 0, 1, [])]), []),
        encode_with_payload(FlushRequest("g", [produce(1, part=2, parts=2)]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [produce(1, part=-1, parts=2)]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [produce(1, part=0, parts=10**9)]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(topic_id=b"short")]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(partition=2**31)]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(principal=1))]), [bytes(100)]),
        encode_with_payload(
            FlushRequest("g", [msgspec.structs.replace(produce(1, 100), principal="p" * 257)]), [bytes(100)]
        ),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(record_count=0))]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(max_timestamp=2**63))]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(producer_id=2**63))]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(producer_epoch=2**15))]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(base_sequence=2**31))]), [bytes(100)]),
        encode_with_payload(FlushRequest("g", [_with(meta=meta(attributes=2**16))]), [bytes(100)]),
    ],
)
async def test_a_malformed_message_is_dropped_and_the_next_is_served(data: bytes) -> None:
    async with Rig() as rig:
        malformed = FakeInbound(data)
        await rig.intake.handle(malformed)
        good = await rig.send_and_close(produce(2))
        assert (await good.reply()).results[0][0].rejection == 0
        assert not malformed.replied.done()
        assert rig.metric("refused_messages_total", reason="malformed") == 1


@in_virtual_time
async def test_after_a_crowded_answer_a_quiet_buffer_waits_for_its_timer() -> None:
    async with Rig(clock=VirtualClock(), quiet_s=0.003, interval_s=0.25) as rig:
        rig.sequencers.replies.put_nowait([SegmentCommitted([[BatchResult(0, 0, 0)]], is_crowded=True)])
        await (await rig.send(produce(1))).reply()
        await (await rig.send(produce(2))).reply()
    assert rig.metric("closed_buffers_total", reason="quiet") == 1
    assert rig.metric("closed_buffers_total", reason="timer") == 1


async def test_a_drain_flushes_complete_requests_and_rejects_incomplete_ones() -> None:
    async with Rig() as rig:
        complete = await rig.send(produce(1))
        incomplete = await rig.send(produce(2, part=0, parts=2))
        await rig.intake.drain()
        await rig.flushes.until_idle()
        assert (await incomplete.reply()).results[0][0].rejection == OVERLOADED
        assert (await complete.reply()).results[0][0].rejection == 0
    assert rig.metric("closed_buffers_total", reason="drain") == 1


async def test_draining_an_empty_buffer_makes_no_segment() -> None:
    async with Rig() as rig:
        await rig.intake.drain()
        await rig.flushes.until_idle()
    assert not rig.store.objects


async def test_record_bytes_are_not_copied_on_their_way_to_the_store() -> None:
    bodies = []

    class Watching(HeldStore):
        async def put(self, key: str, body: list[memoryview], *, if_match: str | None = None) -> str:
            bodies.append(body)
            return await super().put(key, body)

    async with Rig(store=Watching()) as rig:
        message = flush_message(produce(1, MIB), produce(2, MIB))
        await rig.intake.handle(message)
        rig.close_buffer()
        await message.reply()
    assert [view.obj is message.data for view in bodies[0][1:3]] == [True, True]
