"""Segments are uploaded in parallel, committed in the order in which their buffers closed, and then answered."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import Rejected, SegmentCommitted
from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.ids import segment_born_ms, ulid_text
from penstock.contracts.messages import FlushBatch, FlushProduce
from penstock.contracts.rejections import Rejection
from penstock.objectstore import AlreadyExists
from penstock.segment import read_index
from tests.unit.flusher.flusher_fakes import OTHER_TOPIC, TOPIC, HeldStore, LoggingSequencers, Rig, meta, produce, until


async def test_the_answer_comes_after_the_store_and_after_the_commit() -> None:
    async with Rig(store=HeldStore(held=True), sequencers=LoggingSequencers(held=True)) as rig:
        message = await rig.send_and_close(produce(1))
        await until(lambda: rig.store.ends)
        assert not rig.sequencers.requests
        rig.store.ends[0].set_result(None)
        await until(lambda: rig.sequencers.requests)
        assert len(rig.store.objects) == 1
        assert not message.replied.done()
        rig.sequencers.replies.put_nowait(None)
        reply = await message.reply()
    assert [[result.rejection for result in results] for results in reply.results] == [[0]]
    assert reply.sequence == 1


async def test_the_object_is_a_segment_that_matches_its_commit_exactly() -> None:
    async with Rig() as rig:
        message = await rig.send_and_close(produce(1, 100, 70, partition=3), produce(2, 80, topic=OTHER_TOPIC))
        await message.reply()
    ((key, data),) = rig.store.objects.items()
    ((commit,),) = rig.sequencers.requests
    index = read_index(data)
    assert key.endswith(f"0-{ulid_text(commit.segment_id)}")
    assert (index.segment_id, index.writer, index.runs) == (commit.segment_id, "flusher-1", commit.runs)
    assert (commit.writer, commit.zone, commit.size_bytes) == ("flusher-1", "z", len(data))
    first, second = commit.runs
    assert data[first.position : first.position + 170] == bytes([1]) * 170
    assert data[second.position : second.position + 80] == bytes([2]) * 80


async def test_each_request_gets_the_results_of_its_own_batches_though_the_file_is_sorted() -> None:
    async with Rig() as rig:
        late = await rig.send(produce(1, topic=OTHER_TOPIC), produce(2, 100, 100))
        early = await rig.send(produce(3, topic=TOPIC, partition=7), produce(4))
        rig.close_buffer()
        offsets = [
            [[result.base_offset for result in results] for results in (await message.reply()).results]
            for message in (late, early)
        ]
    assert offsets == [[[0], [0, 1]], [[0], [2]]]


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.data())
def test_commits_keep_the_closing_order_for_any_upload_times(ends: list[int], data: st.DataObject) -> None:
    async def scenario() -> None:
        async with Rig(store=HeldStore(held=True), commit_bytes_max=data.draw(st.sampled_from([1, 900, 10**6]))) as rig:
            messages = [await rig.send_and_close(produce(number)) for number in range(6)]
            await until(lambda: len(rig.store.ends) == 6)
            for number in ends:
                rig.store.ends[number].set_result(None)
                for _ in range(data.draw(st.integers(0, 20))):
                    await asyncio.sleep(0)
            offsets = [(await message.reply()).results[0][0].base_offset for message in messages]
            assert offsets == list(range(6))
            assert rig.sequencers.running_max == 1

    asyncio.run(scenario())


async def test_all_segments_stored_during_a_commit_are_in_the_next_commit() -> None:
    async with Rig(sequencers=LoggingSequencers(held=True)) as rig:
        messages = [await rig.send_and_close(produce(0))]
        await until(lambda: rig.sequencers.requests)
        messages += [await rig.send_and_close(produce(number)) for number in range(1, 5)]
        await until(lambda: len(rig.store.objects) == 5)
        rig.sequencers.replies.put_nowait(None)
        rig.sequencers.replies.put_nowait(None)
        for message in messages:
            await message.reply()
    assert [len(request) for request in rig.sequencers.requests] == [1, 4]


async def test_a_commit_is_kept_within_its_bytes() -> None:
    async with Rig(sequencers=LoggingSequencers(held=True), commit_bytes_max=700) as rig:
        messages = [await rig.send_and_close(produce(number)) for number in range(5)]
        await until(lambda: len(rig.store.objects) == 5)
        for _ in range(3):
            rig.sequencers.replies.put_nowait(None)
        for message in messages:
            await message.reply()
    assert [len(request) for request in rig.sequencers.requests] == [2, 2, 1]


async def test_no_more_uploads_run_at_once_than_allowed() -> None:
    async with Rig(store=HeldStore(held=True), upload_parallel_max=3) as rig:
        messages = [await rig.send_and_close(produce(number)) for number in range(8)]
        for number in range(8):
            await until(lambda number=number: len(rig.store.ends) > number)
            rig.store.ends[number].set_result(None)
        for message in messages:
            await message.reply()
    assert rig.store.running_max == 3


async def test_an_unanswered_commit_is_sent_again_with_the_same_segments() -> None:
    async with Rig() as rig:
        rig.sequencers.replies.put_nowait(Unavailable("no answer"))
        message = await rig.send_and_close(produce(1))
        assert (await message.reply()).results[0][0].rejection == 0
    first, second = rig.sequencers.segment_ids()
    assert first == second
    assert len(rig.store.objects) == 1


async def test_a_commit_unanswered_until_too_old_is_answered_as_unknown_and_the_next_continue() -> None:
    async with Rig(sequencers=LoggingSequencers(held=True)) as rig:
        old = await rig.send_and_close(produce(1))
        await until(lambda: rig.sequencers.requests)
        rig.clock.now_s += 900
        young = await rig.send_and_close(produce(2))
        await until(lambda: len(rig.store.objects) == 2)
        rig.sequencers.replies.put_nowait(Unavailable("no answer"))
        assert (await old.reply()).results[0][0].rejection == Rejection.OUTCOME_UNKNOWN
        rig.sequencers.replies.put_nowait(None)
        assert (await young.reply()).results[0][0].rejection == 0
    assert len(rig.store.objects) == 2  # if the outcome is unknown, nothing is deleted


async def test_a_failed_upload_is_rejected_without_a_commit_and_the_next_continue() -> None:
    async with Rig(store=HeldStore(held=True)) as rig:
        messages = [await rig.send_and_close(produce(number)) for number in range(3)]
        await until(lambda: len(rig.store.ends) == 3)
        rig.store.ends[2].set_result(None)
        rig.store.ends[1].set_exception(Unavailable("the store does not answer"))
        rig.store.ends[0].set_result(None)
        rejections = [(await message.reply()).results[0][0].rejection for message in messages]
    assert rejections == [0, Rejection.OVERLOADED, 0]
    committed = [segment_id for request in rig.sequencers.segment_ids() for segment_id in request]
    assert [key[-26:] for key in rig.store.objects] == [ulid_text(each) for each in reversed(committed)]


async def test_an_object_that_already_exists_is_never_committed() -> None:
    async with Rig(store=HeldStore(held=True)) as rig:
        message = await rig.send_and_close(produce(1))
        await until(lambda: rig.store.ends)
        rig.store.ends[0].set_exception(AlreadyExists("an object of another flusher"))
        assert (await message.reply()).results[0][0].rejection == Rejection.OVERLOADED
    assert not rig.sequencers.requests


@pytest.mark.parametrize(
    ("rejection", "answered"),
    [
        (Rejection.SEGMENT_TOO_OLD, Rejection.OUTCOME_UNKNOWN),
        (Rejection.INVALID_REQUEST, Rejection.INVALID_REQUEST),
        (9_999, 9_999),  # of a newer release
    ],
)
async def test_a_rejected_segment_rejects_all_of_its_batches(rejection: int, answered: int) -> None:
    async with Rig() as rig:
        rig.sequencers.replies.put_nowait([Rejected(Rejection(rejection))])
        message = await rig.send_and_close(produce(1, 100, 100), produce(2))
        results = (await message.reply()).results
    assert [[result.rejection for result in each] for each in results] == [[answered, answered], [answered]]


async def test_a_commit_that_fits_no_message_is_rejected_and_the_next_continue() -> None:
    async with Rig(sequencers=LoggingSequencers(held=True)) as rig:
        large = await rig.send_and_close(produce(1))
        await until(lambda: rig.sequencers.requests)
        rig.sequencers.replies.put_nowait(Invalid("over the maximum"))
        assert (await large.reply()).results[0][0].rejection == Rejection.INVALID_REQUEST
        rig.sequencers.replies.put_nowait(None)
        assert (await (await rig.send_and_close(produce(2))).reply()).results[0][0].rejection == 0


async def test_an_answer_of_the_wrong_shape_ends_the_process_without_replies() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with Rig() as rig:
            rig.sequencers.replies.put_nowait([SegmentCommitted([[BatchResult(0, 0, 0)]])])
            message = await rig.send_and_close(produce(1, 100, 100))
            await until(lambda: rig.flushes_task.done())
    assert raised.group_contains(Corrupt)
    assert not message.replied.done()


async def test_the_bytes_leave_the_budget_with_the_answer() -> None:
    async with Rig() as rig:
        message = await rig.send(produce(1, 1_000, 500))
        assert rig.budget.held_bytes == 1_500 + 2 * 1_024
        rig.close_buffer()
        await message.reply()
        await rig.flushes.until_idle()
        assert rig.budget.held_bytes == 0


async def test_new_segments_are_kept_in_memory_and_failed_ones_are_not() -> None:
    async with Rig(store=HeldStore(held=True)) as rig:
        kept, failed = [await rig.send_and_close(produce(number)) for number in (1, 2)]
        await until(lambda: len(rig.store.ends) == 2)
        rig.store.ends[0].set_result(None)
        rig.store.ends[1].set_exception(Unavailable("the store does not answer"))
        await kept.reply()
        await failed.reply()
        assert len(rig.recent) == 1
        ((commit,),) = rig.sequencers.requests
        (data,) = rig.store.objects.values()
        views = rig.recent.read(commit.segment_id, 0, len(data))
        assert views is not None
        assert b"".join(views) == data


HOUR_S = 3_600


@pytest.mark.parametrize(
    ("ahead_s", "passed_s", "expected_s"),
    [
        (HOUR_S, 0, 0),  # the wall clock here is an hour ahead of the state machine's clock
        (HOUR_S, 60, 60),
        (-HOUR_S, 0, 0),
        (-HOUR_S, 60, 30),  # the state machine's clock may run at half speed
        (-30, 600, 570),
    ],
)
async def test_segments_are_born_by_the_state_machines_clock_when_the_wall_clock_is_wrong(
    ahead_s: int, passed_s: int, expected_s: int
) -> None:
    async with Rig() as rig:
        seen_ms = rig.sequencers.seen_clock_ms = rig.clock.now_ms() - ahead_s * 1000
        rig.sequencers.clock_seen_s = rig.clock.monotonic_s()
        rig.clock.now_s += passed_s
        await (await rig.send_and_close(produce(1))).reply()
    times = [(segment_born_ms(commit.segment_id), commit.now_ms) for (commit,) in rig.sequencers.requests]
    assert times == [(seen_ms + expected_s * 1000,) * 2]


async def test_a_commit_names_the_principals_of_idempotent_batches_and_the_object_does_not() -> None:
    """Each segment has its own list, so that a place costs one byte (ADR 0040)."""
    idempotent = FlushBatch(TOPIC, 0, meta(100, producer_id=7, producer_epoch=0, base_sequence=0))
    requests = [
        FlushProduce(1, 0, 1, [idempotent], principal="User:eve"),
        FlushProduce(2, 0, 1, [idempotent]),
        FlushProduce(3, 0, 1, [idempotent, idempotent], principal="User:bob"),
        FlushProduce(4, 0, 1, [idempotent], principal="User:eve"),
        FlushProduce(5, 0, 1, [FlushBatch(TOPIC, 0, meta(100))], principal="User:ann"),
    ]
    async with Rig() as rig:
        await (await rig.send_and_close(*requests)).reply()
        await (await rig.send_and_close(requests[2])).reply()
    (first,), (second,) = rig.sequencers.requests
    assert [each.principal for each in first.runs[0].batches] == [1, 0, 2, 2, 1, 0]
    assert first.principals == ["User:eve", "User:bob"]
    assert ([each.principal for each in second.runs[0].batches], second.principals) == ([1, 1], ["User:bob"])
    data = next(iter(rig.store.objects.values()))
    assert [each.principal for each in read_index(data).runs[0].batches] == [0] * 6
    assert b"User:" not in data
