"""Requests without a producer id are committed only if their gateway confirms them, and only for a short time."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts import subjects
from penstock.contracts.codec import decode, encode
from penstock.contracts.commands import COMMIT_LEASE_MS, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import ConfirmReply, ConfirmRequest
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.bus import Inbound
from penstock.segment import BuiltSegment, build_segment
from penstock_flusher.commit_group import runs_without
from penstock_flusher.confirmation import Confirmation
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.unit.flusher.flusher_fakes import OTHER_TOPIC, TOPIC, LoggingSequencers, Rig, meta, produce, until


async def test_a_gateway_is_asked_once_for_all_its_requests_right_before_the_commit() -> None:
    async with Rig() as rig:
        messages = [
            await rig.send(produce(1, needs_confirmation=True), produce(2)),
            await rig.send(produce(3, needs_confirmation=True), gateway="g2"),
            await rig.send(produce(4, needs_confirmation=True)),
        ]
        assert not rig.gateways.asked
        rig.close_buffer()
        for message in messages:
            await message.reply()
    assert rig.gateways.asked == [("g1", [1, 4]), ("g2", [3])]


async def test_a_segment_of_idempotent_producers_needs_no_confirmation_and_has_the_usual_lease() -> None:
    async with Rig() as rig:
        await (await rig.send_and_close(produce(1))).reply()
    assert not rig.gateways.asked
    (commit,) = rig.sequencers.requests[0]
    assert commit.not_after_ms == commit.now_ms + COMMIT_LEASE_MS


async def test_a_stale_commit_of_idempotent_producers_is_sent_again_with_a_new_lease() -> None:
    async with Rig() as rig:
        rig.sequencers.replies.put_nowait([Rejected(Rejection.STALE, "")])
        message = await rig.send_and_close(produce(1))
        assert (await message.reply()).results[0][0].base_offset == 0
    (first,), (second,) = rig.sequencers.requests
    assert first.segment_id == second.segment_id
    assert second.not_after_ms >= first.not_after_ms


async def test_a_request_that_was_given_up_is_not_committed_and_the_others_get_their_own_results() -> None:
    async with Rig() as rig:
        rig.gateways.given_up = {2}
        message = await rig.send(
            produce(1, 100, 70, needs_confirmation=True),
            produce(2, 80, 90, needs_confirmation=True),
            produce(3, 62, topic=OTHER_TOPIC),
        )
        last = await rig.send(produce(4, 63, needs_confirmation=True))
        rig.close_buffer()
        reply, last_reply = await message.reply(), await last.reply()
    (commit,) = rig.sequencers.requests[0]
    assert [[batch.length for batch in run.batches] for run in commit.runs] == [[100, 70], [63], [62]]
    ((_, data),) = rig.store.objects.items()
    assert [data[run.position] for run in commit.runs] == [1, 4, 3]
    lost = Rejection.OVERLOADED
    assert [[each.rejection for each in results] for results in reply.results] == [[0, 0], [lost, lost], [0]]
    assert [each.base_offset for each in reply.results[0]] == [0, 1]
    assert last_reply.results[0][0].base_offset == 2


async def test_a_segment_whose_unconfirmed_requests_are_all_given_up_has_the_usual_lease() -> None:
    async with Rig() as rig:
        rig.gateways.given_up = {1}
        message = await rig.send_and_close(produce(1, needs_confirmation=True), produce(2))
        assert [each[0].rejection for each in (await message.reply()).results] == [Rejection.OVERLOADED, 0]
    (commit,) = rig.sequencers.requests[0]
    assert commit.not_after_ms == commit.now_ms + COMMIT_LEASE_MS


async def test_the_machines_clock_is_asked_for_only_if_no_answer_showed_it_lately() -> None:
    async with Rig() as rig:
        await (await rig.send_and_close(produce(1))).reply()
        assert rig.sequencers.clock_questions == 1
        rig.sequencers.seen_clock_ms, rig.sequencers.clock_seen_s = 1_000_000, rig.clock.monotonic_s()
        rig.clock.now_s += 1
        await (await rig.send_and_close(produce(2))).reply()
        assert rig.sequencers.clock_questions == 1
        rig.clock.now_s += 1
        await (await rig.send_and_close(produce(3))).reply()
        assert rig.sequencers.clock_questions == 2


async def test_a_lease_counts_from_a_time_that_the_machine_has_reached() -> None:
    async with Rig() as rig:
        rig.gateways.lease_ms = 1_500
        rig.sequencers.seen_clock_ms, rig.sequencers.clock_seen_s = 1_000_000, rig.clock.monotonic_s()
        await rig.send(produce(1, needs_confirmation=True))
        rig.clock.now_s += 8  # the machine's clock may run at half speed
        rig.close_buffer()
        await until(lambda: rig.sequencers.requests)
    assert rig.sequencers.requests[0][0].not_after_ms == 1_000_000 + 4_000 + 1_500


async def test_a_stale_commit_is_confirmed_again_and_loses_what_was_given_up_meanwhile() -> None:
    stale = Rejected(Rejection.STALE, "")
    async with Rig(sequencers=LoggingSequencers(held=True)) as rig:
        first = await rig.send_and_close(produce(1, needs_confirmation=True))
        await until(lambda: rig.sequencers.requests)
        second = await rig.send_and_close(produce(2, needs_confirmation=True))
        rig.gateways.given_up = {1}
        rig.sequencers.replies.put_nowait([stale])
        await until(lambda: len(rig.sequencers.requests) == 2)
        rig.sequencers.replies.put_nowait(None)
        assert (await first.reply()).results[0][0].rejection == Rejection.OVERLOADED
        assert (await second.reply()).results[0][0].base_offset == 0
    assert rig.gateways.asked == [("g1", [1]), ("g1", [1, 2])]
    again, later = rig.sequencers.requests[1]
    assert (again.runs, again.not_after_ms) == ([], later.not_after_ms)


async def test_a_commit_in_doubt_is_sent_again_unchanged_and_without_later_segments() -> None:
    async with Rig(sequencers=LoggingSequencers(held=True)) as rig:
        first = await rig.send_and_close(produce(1, needs_confirmation=True))
        await until(lambda: rig.sequencers.requests)
        second = await rig.send_and_close(produce(2, needs_confirmation=True))
        rig.gateways.given_up = {1}
        rig.clock.now_s += 3
        rig.sequencers.replies.put_nowait(Unavailable("no answer"))
        await until(lambda: len(rig.sequencers.requests) == 2)
        assert rig.sequencers.requests[1] == rig.sequencers.requests[0], "the first attempt may have been accepted"
        rig.sequencers.replies.put_nowait(None)
        assert (await first.reply()).results[0][0].base_offset == 0
        rig.sequencers.replies.put_nowait(None)
        assert (await second.reply()).results[0][0].base_offset == 1


async def test_a_gateway_confirms_over_the_bus() -> None:
    hub = MemoryHub()
    asked = []

    async def confirm(inbound: Inbound) -> None:
        asked.append(decode(inbound.data, ConfirmRequest).requests)
        await inbound.respond(encode(ConfirmReply([5, 0])))

    await hub.connect("g1").subscribe(subjects.confirm("c", "g1"), confirm)
    confirmation = Confirmation(bus=hub.connect("f1"), cluster="c")
    assert await confirmation.leases("g1", [7, 9]) == {7: 5, 9: 0}
    assert asked == [[7, 9]]
    assert await confirmation.leases("g1", [7]) == {7: 0}, "an answer that does not fit confirms nothing"


async def test_a_gateway_that_is_gone_has_given_up_its_requests() -> None:
    confirmation = Confirmation(bus=MemoryHub().connect("f1"), cluster="c")
    assert await confirmation.leases("g1", [1, 2]) == {1: 0, 2: 0}


@pytest.mark.parametrize("dropped", [set(), {0}, {1}, {0, 1, 2, 3}])
def test_no_run_is_empty(dropped: set[int]) -> None:
    assert all(run.batches for run in runs_without(_built([0, 1, 0, 1]), dropped))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_what_is_left_of_a_segment_is_where_it_was(partitions: list[int], data: st.DataObject) -> None:
    built = _built(partitions)
    dropped = data.draw(st.sets(st.integers(0, len(partitions) - 1)))
    places = {}
    for run in built.runs:
        position = run.position
        for batch in run.batches:
            places[batch.max_timestamp] = (run.partition, position)
            position += batch.length
    left = {}
    for run in runs_without(built, dropped):
        position = run.position
        for batch in run.batches:
            left[batch.max_timestamp] = (run.partition, position)
            position += batch.length
    assert left == {number: place for number, place in places.items() if number not in dropped}


def _built(partitions: list[int]) -> BuiltSegment:
    """A segment with one batch for each partition named; the timestamp of a batch is its place in the arrival."""
    batches = [
        (TOPIC, partition, msgspec.structs.replace(meta(70 + number), max_timestamp=number), bytes(70 + number))
        for number, partition in enumerate(partitions)
    ]
    return build_segment(bytes(16), writer="w", created_ms=0, level=0, batches=batches)
