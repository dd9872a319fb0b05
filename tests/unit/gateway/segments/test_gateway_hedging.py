"""A cacher that is slow, paused, gone or new delays no reader for long, and costs few GETs."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.messages import SegmentRead
from penstock_gateway.segments.cache_ring import CacheRing, part_of
from penstock_gateway.segments.hedging import HedgingPolicy
from penstock_gateway.segments.limits import HedgingLimits, SegmentLimits
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.gateway.gateway_read_world import ZONE, LoopClock
from tests.unit.gateway.gateway_zone import Cacher, Zone, check, segment

LIMITS = HedgingLimits()


def in_a_zone(test: Callable[[Zone], Awaitable[None]]) -> Callable[[], None]:
    """Run the test with its own zone, in virtual time."""

    async def run() -> None:
        made = Zone()
        try:
            await test(made)
        finally:
            for name in ["gateway", *made.cachers]:
                made.hub.kill(name)

    run.__name__ = test.__name__
    return in_virtual_time(run)


async def two_cachers(zone: Zone) -> tuple[Cacher, Cacher]:
    """Two cachers: the owner of segment 1 first."""
    cachers = [await zone.add_cacher(name) for name in ("c1", "c2")]
    owner_name = CacheRing(zone.directory, ZONE, DEFAULT_POOL, zone.clock).owners(part_of(segment(1), 0), 1)[0]
    owner, other = sorted(cachers, key=lambda cacher: cacher.name != owner_name)
    return owner, other


@in_a_zone
async def test_the_next_in_the_ring_is_asked_as_well_when_the_owner_takes_long(zone: Zone) -> None:
    owner, other = await two_cachers(zone)
    owner.gate.clear()
    await check(zone, SegmentRead(segment(1), 0, 10))
    assert len(owner.requests) == len(other.requests) == 1
    assert zone.store.gets == []
    assert zone.sample("cacher_hedges", {"first": "other"}) == 1


@in_a_zone
async def test_an_owner_that_answers_during_the_hedge_wins(zone: Zone) -> None:
    owner, other = await two_cachers(zone)
    owner.gate.clear()
    other.gate.clear()
    reading = asyncio.create_task(check(zone, SegmentRead(segment(1), 0, 10)))
    await asyncio.sleep(1.5 * LIMITS.timeout_s_max)
    assert other.requests
    owner.gate.set()
    await reading
    assert zone.sample("cacher_hedges", {"first": "owner"}) == 1


@in_a_zone
async def test_an_owner_that_is_often_slow_is_avoided_for_a_while(zone: Zone) -> None:
    owner, _ = await two_cachers(zone)
    owner.is_silent = True
    for _ in range(LIMITS.losses_max):
        await check(zone, SegmentRead(segment(1), 0, 10))
    assert len(owner.requests) == LIMITS.losses_max
    await check(zone, SegmentRead(segment(1), 0, 10))
    assert len(owner.requests) == LIMITS.losses_max
    owner.is_silent = False
    zone.clock.now_s += LIMITS.slow_avoided_s
    await check(zone, SegmentRead(segment(1), 0, 10))
    assert len(owner.requests) == LIMITS.losses_max + 1


@in_a_zone
async def test_the_only_cacher_is_never_avoided_for_being_slow(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    cacher.is_silent = True
    for number in range(1, min(LIMITS.losses_max + 1, round(LIMITS.hedges_max)) + 1):
        await check(zone, SegmentRead(await zone.put(segment(number)), 0, 10))
        assert len(cacher.requests) == len(zone.store.gets) == number


@in_a_zone
async def test_the_only_cacher_is_asked_again_when_it_was_too_busy_for_one_answer(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    await leave_one_unanswered(zone, cacher)
    await check(zone, SegmentRead(segment(1), 0, 10))
    assert len(cacher.requests) == 3


@in_a_zone
async def test_a_busy_cacher_is_avoided_if_another_can_take_over(zone: Zone) -> None:
    owner, other = await two_cachers(zone)
    await leave_one_unanswered(zone, owner)
    await check(zone, SegmentRead(segment(1), 0, 10))
    assert (len(owner.requests), len(other.requests)) == (2, 2)


async def leave_one_unanswered(zone: Zone, owner: Cacher) -> None:
    """Make one read of segment 1 that its owner answers, and one without an answer and without a hedge."""
    zone.reads = zone.make(SegmentLimits(hedging=HedgingLimits(hedges_max=0.0)))
    ref = await zone.put(segment(1))
    await check(zone, SegmentRead(ref, 0, 10))
    owner.is_silent = True
    await check(zone, SegmentRead(ref, 0, 10))
    owner.is_silent = False
    assert zone.sample("cacher_failures", {"cause": "silent"}) == 1


READERS, PRESENCE_S = 20, 3.0
SLOW_S, RECOVERED_S = 0.1, 5.0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_cacher_that_dies_or_hangs_makes_no_read_slow_five_seconds_later(*, is_killed: bool) -> None:
    @in_a_zone
    async def test(zone: Zone) -> None:
        zone.clock = LoopClock()  # type: ignore[assignment]
        zone.reads = zone.make()
        for name in ("c1", "c2", "c3"):
            await zone.add_cacher(name)
        taken_s: list[tuple[float, float]] = []  # when reads began, and how long they took
        loop = asyncio.get_running_loop()

        async def read_on(number: int) -> None:
            while loop.time() < fails_s + 2 * RECOVERED_S:
                number, began_s = number + READERS, loop.time()
                await check(zone, SegmentRead(segment(number), 0, 10))
                taken_s.append((began_s, loop.time() - began_s))
                await asyncio.sleep(0.02)

        fails_s = loop.time() + 1
        async with asyncio.TaskGroup() as group:
            for number in range(READERS):
                group.create_task(read_on(number))
            await asyncio.sleep(1)
            if is_killed:
                zone.hub.kill(zone.cachers.pop("c1").name)
            else:
                zone.cachers["c1"].is_silent = True
            await asyncio.sleep(PRESENCE_S)
            zone.directory.change(["c2", "c3"])
        slow = [(began_s - fails_s, seconds) for began_s, seconds in taken_s if seconds > SLOW_S]
        assert [each for each in slow if sum(each) > RECOVERED_S] == []
        assert len(slow) <= READERS, "each reader was slow once at most"
        assert zone.store.gets == []

    test()


@in_a_zone
async def test_the_store_is_asked_later_than_another_cacher_would_be(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    cacher.gate.clear()
    reading = asyncio.create_task(check(zone, SegmentRead(segment(1), 0, 10)))
    await asyncio.sleep(1.5 * LIMITS.timeout_s_max)
    assert not zone.store.gets, "the store was asked as soon as another cacher would have been"
    await asyncio.sleep((SegmentLimits().alone_timeout_factor - 1) * LIMITS.timeout_s_max)
    assert zone.store.gets
    cacher.gate.set()
    await reading


@in_a_zone
async def test_a_cancelled_read_leaves_no_task_running(zone: Zone) -> None:
    owner, other = await two_cachers(zone)
    owner.gate.clear()
    other.gate.clear()
    before = len(asyncio.all_tasks())
    reading = asyncio.create_task(zone.reads.read([SegmentRead(segment(1), 0, 10)]))
    await asyncio.sleep(1.5 * LIMITS.timeout_s_max)
    assert other.requests
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(asyncio.all_tasks()) == before


def test_the_timeout_follows_the_usual_answer_time() -> None:
    policy = HedgingPolicy(LIMITS)
    assert policy.hedge_after_s == LIMITS.timeout_s_max
    for _ in range(LIMITS.samples_min):
        policy.record_answer("c1", 0.0, taken_s=0.05, size_bytes=1)
    assert policy.hedge_after_s == pytest.approx(LIMITS.timeout_factor * 0.05)
    for _ in range(1_000):
        policy.record_answer("c1", 0.0, taken_s=0.0001, size_bytes=1)
    assert policy.hedge_after_s == LIMITS.timeout_s_min
    for _ in range(1_000):
        policy.record_answer("c1", 0.0, taken_s=10.0, size_bytes=1)
    assert policy.hedge_after_s == LIMITS.timeout_s_max


def test_hedges_cost_a_few_gets_per_gibibyte_at_most() -> None:
    policy = HedgingPolicy(LIMITS)
    assert sum(policy.take_hedges(1) for _ in range(100)) == LIMITS.hedges_max
    for _ in range(1_024):
        policy.record_answer("c1", 0.0, taken_s=0.01, size_bytes=2**20)
    assert sum(policy.take_hedges(1) for _ in range(100)) == LIMITS.hedges_per_byte * 2**30
    policy.record_answer("c1", 0.0, taken_s=0.01, size_bytes=2**30)
    assert not policy.take_hedges(3)
    assert policy.take_hedges(2)


@in_a_zone
async def test_a_hedge_that_would_cost_many_gets_is_not_made(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    refs = [await zone.put(segment(number)) for number in range(round(LIMITS.hedges_max) + 1)]
    cacher.gate.clear()
    reading = asyncio.create_task(check(zone, *(SegmentRead(ref, 0, 10) for ref in refs)))
    await asyncio.sleep(1.5 * LIMITS.timeout_s_max)
    assert zone.store.gets == []
    cacher.gate.set()
    await reading


def test_a_cacher_that_keeps_losing_is_avoided_for_longer_and_one_win_ends_that() -> None:
    policy = HedgingPolicy(LIMITS)
    avoided_s = [policy.record_lost("c1") for _ in range(10)]
    assert avoided_s[: LIMITS.losses_max - 1] == [0.0] * (LIMITS.losses_max - 1)
    assert avoided_s[LIMITS.losses_max - 1 : LIMITS.losses_max + 1] == [
        LIMITS.slow_avoided_s,
        2 * LIMITS.slow_avoided_s,
    ]
    assert max(avoided_s) == avoided_s[-1] == LIMITS.slow_avoided_s_max
    assert policy.record_lost("c2") == 0.0
    policy.record_won("c1")
    assert policy.record_lost("c1") == 0.0


def test_an_owner_without_substitutes_may_lose_any_number_of_races() -> None:
    """A lone cacher is never avoided, so its losses go on; the store wins each race."""
    policy = HedgingPolicy(LIMITS)
    avoided_s = [policy.record_lost("c1") for _ in range(5_000)]
    assert avoided_s[-1] == LIMITS.slow_avoided_s_max


def owners_among(names: list[str]) -> dict[int, str]:
    zone = Zone()
    zone.directory.change(names)
    ring = CacheRing(zone.directory, ZONE, DEFAULT_POOL, zone.clock)
    return {number: ring.owners(part_of(segment(number), 0), 1)[0] for number in range(2_000)}


def test_a_cacher_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    before, after = owners_among(["c1", "c2", "c3"]), owners_among(["c1", "c2", "c3", "c4"])
    moved = {number for number in before if before[number] != after[number]}
    assert {after[number] for number in moved} == {"c4"}
    assert 0.15 < len(moved) / len(before) < 0.35  # a quarter, about


def test_the_parts_of_a_cacher_that_leaves_go_to_their_second_owners() -> None:
    zone = Zone()
    zone.directory.change(["c1", "c2", "c3"])
    ring = CacheRing(zone.directory, ZONE, DEFAULT_POOL, zone.clock)
    parts = [part_of(segment(number), 0) for number in range(500)]
    ranked = [ring.owners(part, 2) for part in parts]
    zone.directory.change(["c1", "c2"])
    for part, (first, second) in zip(parts, ranked, strict=True):
        assert ring.owners(part, 1) == [second if first == "c3" else first]


@in_a_zone
async def test_gateways_that_see_different_cachers_for_a_moment_read_the_same(zone: Zone) -> None:
    for name in ("c1", "c2", "c3"):
        await zone.add_cacher(name)
    zone.directory.change(["c1", "c2"])  # the third is not in the directory yet
    reads = [SegmentRead(segment(number), number, 50) for number in range(40)]
    await check(zone, *reads)
    zone.directory.change(["c2", "c3"])
    await check(zone, *reads)
    assert zone.store.gets == []
