"""The express lane and the landing store, and the final store when the landing store is full or fails."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.contracts.ids import is_landed
from penstock.objectstore import Full
from penstock.segment.keys import parse_segment_key
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time
from tests.unit.flusher.flusher_fakes import MIB, HeldStore, LoggingSequencers, Rig, produce


class SmallLanding(HeldStore):
    """A store without room for express segments, or one that does not answer for them."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = Full("the landing store is full")
        self.hangs = False

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        if is_landed(parse_segment_key(key)[1]):
            if self.error is not None:
                raise self.error
            if self.hangs:
                await asyncio.sleep(3_600)
        return await super().put(key, body)


def stored(rig: Rig) -> list[bool]:
    """For each committed segment, in order, whether it is an express segment."""
    return [is_landed(segment_id) for request in rig.sequencers.segment_ids() for segment_id in request]


@in_virtual_time
async def test_an_express_request_waits_for_its_own_timer_and_not_for_the_standard_lane() -> None:
    async with Rig(clock=VirtualClock(), interval_s=0.25, express_rate=MIB) as rig:
        standard = await rig.send(produce(1))
        express = await rig.send(produce(2, is_express=True))
        await express.reply()
        assert rig.clock.monotonic_s() < 0.1
        assert not standard.replied.done()
        await standard.reply()
    assert stored(rig) == [True, False]
    assert rig.metric("stored_segments_total", store="landing") == 1
    assert rig.metric("stored_segments_total", store="final") == 1


@in_virtual_time
async def test_a_slow_put_of_the_standard_lane_does_not_delay_the_express_lane() -> None:
    store = HeldStore(held=True)
    async with Rig(clock=VirtualClock(), store=store, interval_s=0.001, express_rate=MIB) as rig:
        standard = await rig.send(produce(1))
        await asyncio.sleep(0.01)
        assert len(store.ends) == 1
        express = await rig.send(produce(2, is_express=True))
        await asyncio.sleep(0.01)
        store.ends[1].set_result(None)
        await express.reply()
        assert not standard.replied.done()
        store.ends[0].set_result(None)
        await standard.reply()


async def test_without_a_landing_store_express_requests_take_the_standard_lane() -> None:
    async with Rig() as rig:
        message = await rig.send(produce(1), produce(2, is_express=True))
        rig.close_buffer()
        await message.reply()
    assert stored(rig) == [False]


@in_virtual_time
async def test_a_segment_without_room_in_the_landing_store_goes_to_the_final_store() -> None:
    store = SmallLanding()
    async with Rig(clock=VirtualClock(), store=store, express_rate=MIB) as rig:
        for number in range(3):
            store.error = Full("full") if number == 1 else None
            assert (await (await rig.send(produce(number, is_express=True))).reply()).results[0][0].rejection == 0
    assert stored(rig) == [True, False, True]
    assert [is_landed(parse_segment_key(key)[1]) for key in store.objects] == [True, False, True]
    assert len(rig.recent) == 3, "only the stored segments are kept for readers"


@in_virtual_time
async def test_segments_above_the_rate_go_to_the_final_store() -> None:
    """Otherwise a fast producer would delay the journal, which is on the same disks."""
    async with Rig(clock=VirtualClock(), express_rate=1_000) as rig:
        for number, pause_s in enumerate((0.0, 0.0, 0.0, 3.0)):
            await asyncio.sleep(pause_s)
            await (await rig.send(produce(number, 1_500, is_express=True))).reply()
    assert stored(rig) == [True, False, False, True]


@pytest.mark.parametrize("is_express", [True, False])
def test_a_landing_store_that_hangs_delays_few_segments(is_express: bool) -> None:
    """The first put is given up after half a second. Then no segment goes there for 30 s."""

    @in_virtual_time
    async def run() -> None:
        store = SmallLanding()
        store.error = None
        store.hangs = True
        settings = {"express_rate": MIB} if is_express else {"lands_all": True, "interval_s": 0.005}
        async with Rig(clock=VirtualClock(), store=store, **settings) as rig:
            times_s = []
            for number in range(20):
                began_s = rig.clock.monotonic_s()
                reply = await (await rig.send(produce(number, is_express=is_express))).reply()
                assert reply.results[0][0].rejection == 0
                times_s.append(rig.clock.monotonic_s() - began_s)
                store.hangs = number < 8
                await asyncio.sleep(6.0)
            assert sum(each > 0.4 for each in times_s) == 2, times_s
            assert max(times_s) < 0.6
            assert stored(rig)[-4:] == [True] * 4, "it is used again"
            assert not any(rig.degraded.values())

    run()


@pytest.mark.parametrize("error", [Unavailable("no answer"), Invalid("access denied")])
def test_a_landing_store_that_fails_is_degraded_health_and_no_rejection(error: PenstockError) -> None:
    @in_virtual_time
    async def run() -> None:
        store = SmallLanding()
        store.error = error
        async with Rig(clock=VirtualClock(), store=store, lands_all=True, interval_s=0.005) as rig:
            assert (await (await rig.send(produce(1))).reply()).results[0][0].rejection == 0
            assert str(error) in rig.degraded["landing"]
            await asyncio.sleep(31.0)
            store.error = None
            await (await rig.send(produce(2))).reply()
            assert rig.degraded["landing"] == ""
        assert stored(rig) == [False, True]

    run()


@in_virtual_time
async def test_with_a_landing_store_for_all_segments_both_lanes_use_it() -> None:
    async with Rig(clock=VirtualClock(), lands_all=True, interval_s=0.005, express_rate=MIB) as rig:
        for number in range(4):
            await (await rig.send(produce(number, is_express=number % 2 == 0))).reply()
    assert stored(rig) == [True] * 4
    assert rig.metric("stored_segments_total", store="landing") == 4


@pytest.mark.parametrize("express_first", [True, False])
async def test_a_drain_closes_the_buffers_of_both_lanes(express_first: bool) -> None:
    async with Rig(express_rate=MIB, sequencers=LoggingSequencers()) as rig:
        messages = [await rig.send(produce(number, is_express=express_first is not bool(number))) for number in (0, 1)]
        await rig.intake.drain()
        for message in messages:
            await message.reply()
    assert sorted(stored(rig)) == [False, True]
