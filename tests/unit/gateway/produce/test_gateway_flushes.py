"""FlushRouter: each connection uses one flusher in order, windows limit the bytes, and no outcome is guessed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.batches import BatchMeta
from penstock.contracts.codec import encode
from penstock.contracts.messages import FlushBatch, FlushReply, Presence
from penstock.contracts.rejections import Rejection
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.produce.limits import ProduceLimits
from penstock_gateway.produce.producer_route import Flushed, ProducerRoute, is_undecided
from tests.testkit.cancelling import turns
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub, Nothing
from tests.unit.gateway.gateway_fakes import FakeFlusher, World, gateway_presence, new_world, with_flushes

TIMEOUT_S = 30.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@pytest.fixture
async def quick() -> AsyncIterator[World]:
    """A world whose flush router sweeps by itself within the test's time."""
    world = new_world(limits=GatewayLimits(produce=ProduceLimits(sweep_interval_s=0.001)))
    async with with_flushes(world):
        yield world


@contextlib.asynccontextmanager
async def opened(hub: MemoryHub | None = None) -> AsyncIterator[World]:
    world = new_world(hub=hub)
    async with with_flushes(world):
        yield world


def submit(
    route: ProducerRoute,
    size_bytes: int = 100,
    count: int = 1,
    timeout_s: float = TIMEOUT_S,
    *,
    is_express: bool = False,
) -> "asyncio.Future[Flushed]":
    meta = BatchMeta(size_bytes, 1, 0, -1, -1, -1, 0)
    batches = [FlushBatch(bytes(16), 0, meta)] * count
    return route.submit(batches, [b"x" * size_bytes] * count, timeout_s, is_express=is_express)


def rejections_of(flushed: Flushed) -> list[int]:
    return [result.rejection for result in flushed.results]


def open_route(world: World) -> ProducerRoute:
    return world.flush_router.open_route(lambda: None)


async def test_produces_of_one_loop_iteration_are_sent_in_one_message_in_order(world: World) -> None:
    flusher = await world.add_flusher("f1")
    routes = [open_route(world) for _ in range(3)]
    futures = [submit(route) for route in routes * 2]
    await asyncio.gather(*futures)
    assert len(flusher.requests) == 1
    assert flusher.numbers == [1, 2, 3, 4, 5, 6]
    assert [future.result().results[0].base_offset for future in futures] == [0, 1, 2, 3, 4, 5]


async def test_lanes_have_separate_messages_as_a_message_is_answered_as_a_whole(world: World) -> None:
    flusher = await world.add_flusher("f1")
    futures = [submit(open_route(world), is_express=number % 2 == 0) for number in range(4)]
    await asyncio.gather(*futures)
    lanes = [{produce.is_express for produce in request.produces} for request, _ in flusher.requests]
    assert sorted(map(sorted, lanes)) == [[False], [True]]


async def test_a_request_of_another_lane_waits_until_all_before_it_are_answered(world: World) -> None:
    flusher = await world.add_flusher("f1")
    flusher.answers_at_once = False
    changes: list[bool] = []
    route = world.flush_router.open_route(lambda: changes.append(route.is_full))
    futures = [submit(route, is_express=is_express) for is_express in (False, False, True, True, False)]
    await turns()
    for numbers in ([1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]):
        assert flusher.numbers == numbers
        assert route.is_full is (len(numbers) < 5), "the client is not read while its requests wait"
        await flusher.answer_all()
        await turns()
    assert all(future.done() for future in futures)
    assert changes[0] and not changes[-1]


async def test_requests_of_a_producer_that_waits_for_answers_are_counted(world: World) -> None:
    flusher = await world.add_flusher("f1")
    flusher.answers_at_once = False
    routes = [open_route(world) for _ in range(2)]
    futures = [submit(route) for route in routes for _ in range(4)]
    assert at_limit(world) == 0
    futures += [submit(routes[0]) for _ in range(2)]
    assert at_limit(world) == 2
    await turns()
    await flusher.answer_all()
    await asyncio.gather(*futures)
    last = submit(routes[0])
    assert at_limit(world) == 2
    await turns()
    await flusher.answer_all()
    await last


def at_limit(world: World) -> float:
    return world.metric("penstock_gateway_requests_at_limit_total")


async def test_a_connection_keeps_its_flusher_when_others_join(world: World) -> None:
    first = await world.add_flusher("f1")
    route = open_route(world)
    await submit(route)
    others = [await world.add_flusher(f"f{number}") for number in range(2, 8)]
    for _ in range(5):
        await submit(route)
    assert len(first.produces) == 6
    assert not any(other.produces for other in others)


async def test_connections_spread_over_the_flushers(world: World) -> None:
    flushers = [await world.add_flusher(f"f{number}") for number in range(3)]
    await asyncio.gather(*[submit(open_route(world)) for _ in range(60)])
    assert all(len(flusher.produces) > 5 for flusher in flushers)


async def test_a_request_larger_than_a_message_is_sent_in_consecutive_parts_and_answered_as_one() -> None:
    world = new_world(message_bytes_max=4_096)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(world.flush_router.run())
        await turns()
        flusher = await world.add_flusher("f1")
        route = open_route(world)
        small, large, last = submit(route), submit(route, 1_500, count=5), submit(route)
        await asyncio.gather(small, large, last)
        running.cancel()
    parts = [(produce.request, produce.part, produce.parts) for produce in flusher.produces]
    assert parts == [(1, 0, 1), (2, 0, 3), (2, 1, 3), (2, 2, 3), (3, 0, 1)]
    assert [result.base_offset for result in large.result().results] == [1, 2, 3, 4, 5]


async def test_undelivered_requests_are_sent_to_another_flusher_in_order(world: World) -> None:
    gone = await world.add_flusher("f1")
    route = open_route(world)
    await submit(route)
    await gone.go_away()
    futures = [submit(route) for _ in range(3)]
    await turns()
    other = await world.add_flusher("f2")
    await asyncio.gather(*futures)
    assert other.numbers == [2, 3, 4]
    assert all(rejections_of(future.result()) == [0] for future in futures)


async def test_a_flusher_that_was_gone_is_tried_again_if_there_is_no_other(world: World) -> None:
    flusher = await world.add_flusher("f1")
    await flusher.go_away()
    future = submit(open_route(world))
    await turns()
    await flusher.open()
    world.flush_router.sweep()
    await turns()
    assert not future.done(), "the flusher is avoided for a while"
    world.clock.now_s += 1
    world.flush_router.sweep()
    assert rejections_of(await future) == [0]


async def test_a_missing_answer_is_an_unknown_outcome_and_nothing_is_sent_again(world: World) -> None:
    flusher = await world.add_flusher("f1")
    other = await world.add_flusher("f2")
    flusher.answers_at_once = other.answers_at_once = False
    future = submit(open_route(world))
    await turns()
    world.bus.cut()
    world.bus.mend()
    assert rejections_of(await future) == [Rejection.OUTCOME_UNKNOWN]
    assert len(flusher.produces) + len(other.produces) == 1


async def test_a_flusher_that_vanishes_leaves_unknown_outcomes_that_no_request_overtakes(world: World) -> None:
    dead = await world.add_flusher("f1", budget_bytes=1_000)
    dead.answers_at_once = False
    route = open_route(world)
    unknown, waiting = submit(route, 5_000), submit(route, 5_000)
    await turns()
    assert len(dead.produces) == 1
    other = await world.add_flusher("f2")
    world.directory.drop("f1")
    assert rejections_of(await unknown) == [Rejection.OUTCOME_UNKNOWN]
    assert is_undecided((await waiting).results)
    assert is_undecided((await submit(route)).results)
    assert other.produces == []
    assert rejections_of(await submit(open_route(world))) == [0]


class RestartHub(MemoryHub):
    """The first request arrives before the flusher has subscribed again; later ones reach it."""

    def __init__(self) -> None:
        super().__init__()
        self._is_first = True

    def send(self, sender: MemoryBus, subject: str, data: bytes, reply: str) -> None:
        if reply and self._is_first:
            self._is_first = False
            sender.take_answer(reply, Nothing.NO_SUBSCRIBER)
        else:
            super().send(sender, subject, data, reply)


@pytest.fixture
async def restarted() -> AsyncIterator[World]:
    async with opened(RestartHub()) as made:
        yield made


async def retried(world: World, *futures: "asyncio.Future[Flushed]") -> list[Flushed]:
    await turns(30)
    world.clock.now_s += 1
    world.flush_router.sweep()
    return await asyncio.gather(*futures)


async def test_a_request_that_waits_for_the_window_does_not_overtake_a_retry(restarted: World) -> None:
    flusher = await restarted.add_flusher("f1", budget_bytes=1_000)
    route = open_route(restarted)
    answers = await retried(restarted, *[submit(route, 5_000) for _ in range(3)])
    assert [rejections_of(answer) for answer in answers] == [[0]] * 3
    assert flusher.numbers == [1, 2, 3]


async def test_a_request_that_was_overtaken_in_flight_ends_the_route(restarted: World) -> None:
    flusher = await restarted.add_flusher("f1")
    route = open_route(restarted)
    overtaken, *_ = await retried(restarted, *[submit(route, 5_000_000) for _ in range(3)])
    assert is_undecided(overtaken.results)
    assert flusher.numbers == [2, 3]
    assert is_undecided((await submit(route)).results)


async def test_a_flusher_that_was_silent_and_is_back_gets_a_new_window(world: World) -> None:
    flusher = await world.add_flusher("f1", budget_bytes=1_000)
    route = open_route(world)
    await submit(route)
    world.directory.drop("f1")
    world.directory.put(flusher.presence)
    flusher.answers_at_once = False
    futures = [submit(route, 5_000), submit(open_route(world)), submit(route, 5_000)]
    await turns()
    world.clock.now_s += 1_000
    world.flush_router.sweep()
    await turns()
    assert futures[2].done(), "its deadline has passed"
    world.directory.drop("f1")
    await asyncio.gather(*futures)


async def test_a_connection_leaves_a_draining_flusher_only_when_everything_there_is_answered(world: World) -> None:
    old = await world.add_flusher("f1")
    old.answers_at_once = False
    route = open_route(world)
    first = submit(route)
    await turns()
    new = await world.add_flusher("f2")
    world.directory.leave("f1")
    second = submit(route)
    await turns()
    assert new.produces == [] and route.is_full
    await old.answer_all()
    await asyncio.gather(first, second)
    assert (old.numbers, new.numbers) == ([1], [2])
    assert not route.is_full


async def test_with_no_flusher_requests_wait_for_one(world: World) -> None:
    route = open_route(world)
    future = submit(route)
    await turns()
    assert not future.done() and route.is_full
    await world.add_flusher("f1")
    assert rejections_of(await future) == [0]
    assert not route.is_full


async def test_a_request_that_found_no_flusher_in_time_was_surely_not_stored(world: World) -> None:
    route = open_route(world)
    short, long = submit(route, timeout_s=5), submit(route, timeout_s=50)
    world.clock.now_s += 6
    world.flush_router.sweep()
    assert rejections_of(await short) == [Rejection.OVERLOADED]
    assert is_undecided((await long).results), "it must not overtake the request before it"


async def test_the_own_zone_is_preferred_and_another_is_used_if_it_has_no_flusher(world: World) -> None:
    far = await world.add_flusher("far", zone="z2")
    route = open_route(world)
    await submit(route)
    assert len(far.produces) == 1
    assert world.metric("penstock_gateway_zone_fallbacks_total") == 1
    near = await world.add_flusher("near")
    await submit(route)
    assert (len(far.produces), len(near.produces)) == (1, 1)
    assert world.metric("penstock_gateway_zone_fallbacks_total") == 1


async def test_only_flushers_of_the_gateways_pool_are_used_also_if_that_has_none(world: World) -> None:
    other = await world.add_flusher("other", pool="analytics")
    future = submit(open_route(world))
    await turns()
    assert not future.done()
    far = await world.add_flusher("far", zone="z2")
    await future
    assert (len(far.produces), len(other.produces)) == (1, 0)


async def test_a_flushers_budget_is_shared_by_the_gateways_of_its_pool_only(world: World) -> None:
    await world.add_flusher("f1", budget_bytes=1_000_000)
    for number in range(3):
        there = gateway_presence(f"g{number}")
        world.directory.put(msgspec.structs.replace(there, pool="analytics") if number else there)
    assert world.flush_router.window_bytes("f1") == 1_000_000


async def test_bytes_sent_to_flushers_are_counted_by_the_flushers_zone(world: World) -> None:
    await world.add_flusher("far", zone="z2")
    await submit(open_route(world), 1_000)
    far_bytes = world.metric("penstock_gateway_flush_bytes_total", zone="z2")
    assert 1_000 < far_bytes < 1_200
    assert world.metric("penstock_gateway_flush_bytes_total", zone="z1") == 0
    await world.add_flusher("near")
    await submit(open_route(world), 5_000)
    assert 5_000 < world.metric("penstock_gateway_flush_bytes_total", zone="z1") < 5_200
    assert world.metric("penstock_gateway_flush_bytes_total", zone="z2") == far_bytes


async def test_a_full_window_holds_requests_back_and_reports_it(world: World) -> None:
    flusher = await world.add_flusher("f1", budget_bytes=10_000)
    flusher.answers_at_once = False
    changes = []
    route = world.flush_router.open_route(lambda: changes.append(route.is_full))
    futures = [submit(route, 2_000) for _ in range(5)]
    await turns()
    assert flusher.numbers == [1, 2, 3]
    assert changes == [True]
    await flusher.answer_all()
    await turns()
    assert flusher.numbers == [1, 2, 3, 4, 5]
    assert changes == [True, False]
    await flusher.answer_all()
    await asyncio.gather(*futures)
    assert world.flush_router.unanswered_bytes == 0


async def test_a_request_larger_than_the_window_is_sent_when_nothing_else_is_unanswered(world: World) -> None:
    flusher = await world.add_flusher("f1", budget_bytes=1_000)
    flusher.answers_at_once = False
    route = open_route(world)
    first, second = submit(route, 5_000), submit(route, 5_000)
    await turns()
    assert flusher.numbers == [1]
    await flusher.answer_all()
    await turns()
    assert flusher.numbers == [1, 2]
    await flusher.answer_all()
    await asyncio.gather(first, second)


async def test_gateways_share_a_flushers_budget(world: World) -> None:
    for number in range(4):
        world.directory.put(Presence("gateway", "z1", f"g{number}", "1"))
    flusher = await world.add_flusher("f1", budget_bytes=40_000)
    flusher.answers_at_once = False
    route = open_route(world)
    futures = [submit(route, 4_000) for _ in range(4)]
    await turns()
    assert flusher.numbers == [1]
    world.directory.drop("f1")
    await asyncio.wait(futures[:1])


async def test_a_request_that_waits_for_the_window_too_long_was_surely_not_stored(world: World) -> None:
    flusher = await world.add_flusher("f1", budget_bytes=1_000)
    flusher.answers_at_once = False
    route = open_route(world)
    first, late = submit(route, 5_000), submit(route, 5_000, timeout_s=2)
    await turns()
    world.clock.now_s += 3
    world.flush_router.sweep()
    assert rejections_of(await late) == [Rejection.OVERLOADED]
    await flusher.answer_all()
    assert rejections_of(await first) == [0]
    assert flusher.numbers == [1]


async def test_waiting_requests_are_looked_at_again_and_again_without_being_asked(quick: World) -> None:
    route = open_route(quick)
    without_flusher = submit(route, timeout_s=5)
    quick.clock.now_s += 6
    assert rejections_of(await without_flusher) == [Rejection.OVERLOADED]
    flusher = await quick.add_flusher("f1", budget_bytes=1_000)
    flusher.answers_at_once = False
    full = open_route(quick)
    first, late = submit(full, 5_000), submit(full, 5_000, timeout_s=2)
    await turns()
    quick.clock.now_s += 3
    assert rejections_of(await late) == [Rejection.OVERLOADED]
    await flusher.answer_all()
    assert rejections_of(await first) == [0]
    await flusher.go_away()
    flusher.answers_at_once = True
    avoided = submit(open_route(quick))
    await turns()
    await flusher.open()
    quick.clock.now_s += 1
    assert rejections_of(await avoided) == [0]


@pytest.mark.parametrize("reply", [b"", b"\x01nonsense", encode(FlushReply(1, [])), encode(FlushReply(1, [[], []]))])
async def test_an_invalid_reply_is_an_unknown_outcome(world: World, reply: bytes) -> None:
    flusher = await world.add_flusher("f1")
    flusher.answers_at_once = False
    future = submit(open_route(world))
    await turns()
    await flusher.answer_with(reply)
    assert rejections_of(await future) == [Rejection.OUTCOME_UNKNOWN]


async def test_a_flushers_throttle_reaches_the_client(world: World) -> None:
    flusher = await world.add_flusher("f1")
    flusher.throttle_ms = 70
    assert (await submit(open_route(world))).throttle_ms == 70


async def test_answers_report_the_journal_sequence_to_the_sequencer_client(world: World) -> None:
    await world.add_flusher("f1")
    await submit(open_route(world))
    assert world.sequencer.seen_sequence == 7


async def test_nothing_is_sent_while_the_bus_is_disconnected_and_the_order_stays(world: World) -> None:
    flusher = await world.add_flusher("f1")
    route = open_route(world)
    world.bus.cut()
    futures = [submit(route) for _ in range(3)]
    await turns()
    assert route.is_full
    world.bus.mend()
    world.flush_router.sweep()
    futures.append(submit(route))
    await asyncio.gather(*futures)
    assert flusher.numbers == [1, 2, 3, 4]


async def test_a_closed_route_answers_no_request_and_leaves_no_state(world: World) -> None:
    route = open_route(world)
    future = submit(route)
    route.close()
    flusher = await world.add_flusher("f1")
    await turns()
    assert flusher.produces == [] and not future.done()
    assert not world.flush_router.stalled


steps = st.lists(
    st.tuples(
        st.sampled_from(["submit", "express", "answer", "leave", "drop", "return", "deaf", "wait"]), st.integers(0, 2)
    ),
    min_size=5,
    max_size=40,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps)
def test_requests_arrive_once_and_in_order_while_flushers_come_and_go(
    script: list[tuple[str, int]],
) -> None:
    """Flushers see each connection's requests in order, each at most once, and each is answered exactly once.

    Never are two requests of one connection in different lanes.
    """
    asyncio.run(play(script))


async def play(script: list[tuple[str, int]]) -> None:
    world = new_world()
    running = asyncio.create_task(world.flush_router.run())
    await turns()
    arrived: list[int] = []
    routes = [open_route(world) for _ in range(3)]
    numbers: dict[ProducerRoute, list[int]] = {route: [] for route in routes}
    futures: list[asyncio.Future[Flushed]] = []
    express: set[int] = set()

    def arrive(number: int) -> None:
        (own,) = (own for own in numbers.values() if number in own)
        others = [each for each in own if (each in express) != (number in express) and each in arrived]
        assert all(futures[each - 1].done() for each in others)
        arrived.append(number)

    flushers = [await recording_flusher(world, f"f{number}", arrive) for number in range(3)]
    for action, which in script:
        flusher = flushers[which]
        if action in ("submit", "express"):
            numbers[routes[which]].append(len(futures) + 1)
            express.update([len(futures) + 1] if action == "express" else [])
            futures.append(submit(routes[which], is_express=action == "express"))
        elif action == "wait":
            world.clock.now_s += 0.6
            world.flush_router.sweep()
        else:
            await disturb(world, flusher, action)
        await turns(8)
    for flusher in flushers:
        await disturb(world, flusher, "return")
        flusher.answers_at_once = True
    for _ in range(6):
        world.clock.now_s += 0.6
        world.flush_router.sweep()
        for flusher in flushers:
            await flusher.answer_all()
        await turns(30)
    assert all(future.done() for future in futures)
    for own in numbers.values():
        assert [number for number in arrived if number in own] == [number for number in own if number in arrived]
    assert len(set(arrived)) == len(arrived)
    for number, future in enumerate(futures, 1):
        assert (number in arrived) or rejections_of(future.result()) != [0]
    running.cancel()
    await asyncio.wait({running})


async def recording_flusher(world: World, instance: str, arrive: Callable[[int], None]) -> FakeFlusher:
    flusher = await world.add_flusher(instance)
    flusher.answers_at_once = False
    flusher.on_produce = arrive
    return flusher


async def disturb(world: World, flusher: FakeFlusher, action: str) -> None:
    instance = flusher.presence.instance
    if action == "answer":
        await flusher.answer_all()
    elif action == "leave" and world.directory.get(instance):
        world.directory.leave(instance)
    elif action == "drop" and world.directory.get(instance):
        world.directory.drop(instance)
    elif action == "return":
        await flusher.go_away()
        await flusher.open()
        world.directory.put(flusher.presence)
    elif action == "deaf":
        await flusher.go_away()


async def test_routes_with_one_key_choose_the_same_flusher_in_any_gateway(world: World) -> None:
    flushers = [await world.add_flusher(f"f{number}") for number in range(5)]
    another = new_world()
    theirs = [await another.add_flusher(f"f{number}") for number in range(5)]
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(another.flush_router.run())
        await turns()
        for each in (world, another, world, another):
            await submit(each.flush_router.open_route(lambda: None, "producer-7\0 10.0.0.7"))
        running.cancel()
    assert [len(one.produces) for one in flushers] == [len(one.produces) for one in theirs]
    assert sorted(len(one.produces) for one in flushers) == [0, 0, 0, 0, 2]
