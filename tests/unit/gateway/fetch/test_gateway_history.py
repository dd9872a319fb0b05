"""Whoever replays, however many they are and whatever they ask for, neither fills the memory nor holds up the tail."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.chunks import RECENT_MS
from penstock.contracts.ids import TopicId
from penstock.contracts.messages import SegmentRead
from penstock.runtime.concurrency.byte_budget import ByteBudget
from penstock_gateway.fetch.catch_up_throttle import CatchUpSlot, CatchUpThrottle
from penstock_gateway.fetch.prefetch import AHEAD_BYTES_MAX, AHEAD_BYTES_MIN, PARTS_MAX, PLANNED_EXTENTS_MAX, Prefetcher
from penstock_gateway.handlers.data import fetch
from penstock_gateway.kafka.response_memory import HISTORY_SHARE, ResponseMemory
from penstock_gateway.segments import segment_reader
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import START_MS, World, asking, batch_of, partitions_of, values_of

KIB = 1024
FOR_EVER_MS = 300_000
CLIENTS, ASKED_BYTES = 200, 50_000_000
UNSENT_BYTES, FETCHED_BYTES = 2_000 * KIB, 1_000 * KIB
BATCH_BYTES = 50 * KIB
BATCHES = 8
TURNS = 100
SLOW = 4 * 1024 * KIB  # bytes of history per second
KEY = (bytes(16), 0)


class LaterClock:
    """A time at which everything that the tests write is history; it passes as the event loop's does."""

    def now_ms(self) -> int:
        return START_MS + RECENT_MS + 1

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(segment_reader, "ROOM_WAIT_S", 0.01)
    monkeypatch.setattr(fetch, "ROOM_WAIT_S", 0.01)
    async with opened() as made:
        yield made


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[World]:
    made = World()
    made.unsent.__init__(UNSENT_BYTES)  # type: ignore[misc]  # who has it has this one
    yield made
    assert made.reads.budget.used_bytes == made.reads.history_budget.used_bytes == 0, "a fetch kept bytes of a budget"
    await made.close()


async def filled(world: World, partitions: int = 1) -> TopicId:
    topic_id = await world.open(partitions=partitions)
    batch = batch_of(bytes(BATCH_BYTES))
    await world.produce(topic_id, {number: [batch] * BATCHES for number in range(partitions)})
    return topic_id


def let_it_be_history(world: World) -> None:
    world.clock = world.reads._clock = LaterClock()  # type: ignore[assignment]


async def size_of_answers(world: World, clients: int) -> int:
    """The records that so many clients get who ask at once for far too much, and do not take what they get."""

    async def get() -> int:
        request = asking({0: 0}, max_bytes=ASKED_BYTES, partition_max_bytes=ASKED_BYTES)
        answer = partitions_of(await world.fetch(request))[0]
        assert answer.error_code == 0
        size_bytes = len(answer.records or b"")
        world.unsent.change(size_bytes)
        return size_bytes

    gate = asyncio.Event()
    get_range = world.store.get_range

    async def get_range_late(key: str, position: int, length: int) -> bytes:
        await gate.wait()
        return await get_range(key, position, length)

    world.store.get_range = get_range_late  # type: ignore[method-assign]
    getting = [asyncio.create_task(get()) for _ in range(clients)]
    await until(lambda: bool(world.reads.budget.used_bytes))
    for _ in range(TURNS):  # until all stand in line, for which there was room so far
        await asyncio.sleep(0)
    gate.set()
    return sum(await asyncio.gather(*getting))


async def test_two_hundred_clients_that_ask_for_fifty_megabytes_each_and_take_nothing_get_what_there_is_room_for(
    world: World,
) -> None:
    await filled(world)
    world.reads.budget = ByteBudget(FETCHED_BYTES)
    got = await size_of_answers(world, CLIENTS)
    assert UNSENT_BYTES <= got <= UNSENT_BYTES + FETCHED_BYTES
    assert 20 * got < CLIENTS * BATCHES * BATCH_BYTES, "that would not have been too much"


async def test_those_who_replay_and_take_nothing_leave_room_for_who_follows_the_end(world: World) -> None:
    await filled(world)
    let_it_be_history(world)
    world.reads.history_budget = ByteBudget(FETCHED_BYTES // 2)
    got = await size_of_answers(world, CLIENTS)
    assert 0 < got <= UNSENT_BYTES // HISTORY_SHARE + FETCHED_BYTES // 2 < UNSENT_BYTES
    assert await world.unsent.until_room(0)


async def test_who_replays_goes_on_when_others_take_their_answers() -> None:
    unsent = ResponseMemory(10)
    unsent.change(5)
    assert await unsent.until_room(0)
    assert not await unsent.until_room(0.001, is_history=True)
    waiting = asyncio.create_task(unsent.until_room(30, is_history=True))
    await asyncio.sleep(0)
    unsent.change(-1)
    assert await waiting


@pytest.mark.parametrize("is_old", [False, True])
async def test_answers_with_history_are_short(world: World, monkeypatch: pytest.MonkeyPatch, *, is_old: bool) -> None:
    monkeypatch.setattr(fetch, "HISTORY_BYTES_MAX", 3 * BATCH_BYTES)
    await filled(world)
    if is_old:
        let_it_be_history(world)
    answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    size_bytes = len(answer.records or b"")
    assert (2 * BATCH_BYTES < size_bytes <= 3 * BATCH_BYTES) if is_old else size_bytes > BATCHES * BATCH_BYTES


async def test_while_somebody_follows_the_end_answers_with_history_are_shorter_still(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "HELD_HISTORY_BYTES_MAX", 2 * BATCH_BYTES)
    topic_id = await filled(world)
    following = asyncio.create_task(world.fetch(asking({0: BATCHES}, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: bool(world.tail.watched_partitions))
    assert not world.reads.pace.is_held, "nothing new came yet"
    await world.produce(topic_id, {0: [batch_of(b"new")]})
    await following
    assert world.reads.pace.is_held
    let_it_be_history(world)
    answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    assert BATCH_BYTES < len(answer.records or b"") <= 2 * BATCH_BYTES


@in_virtual_time
async def test_who_replays_one_partition_and_follows_another_has_its_news_at_once_and_in_time_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as world:
        topic_id = await filled(world, partitions=2)
        let_it_be_history(world)
        monkeypatch.setattr("tests.unit.gateway.gateway_read_world.START_MS", world.clock.now_ms())
        await world.produce(topic_id, {1: [batch_of(b"new")]})
        pace = world.reads.pace = CatchUpThrottle(SLOW, world.clock)
        pace.record_followed()
        assert await pace.until_due(CatchUpSlot(), SLOW // 4, 0)  # somebody else has the next quarter of a second
        request = asking({0: 0, 1: BATCHES})
        held = partitions_of(await world.fetch(request))
        assert not held[0].records
        assert values_of(held[1]) == {BATCHES: b"new"}
        await asyncio.sleep(0.25)
        pace.record_followed()
        both = partitions_of(await world.fetch(request))
        assert both[0].records
        assert both[1].records == held[1].records


async def test_where_there_is_more_news_than_an_answer_takes_history_has_its_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "HELD_HISTORY_BYTES_MAX", 2 * BATCH_BYTES)
    topic_id = await filled(world, partitions=2)
    let_it_be_history(world)
    monkeypatch.setattr("tests.unit.gateway.gateway_read_world.START_MS", world.clock.now_ms())
    await world.produce(topic_id, {1: [batch_of(bytes(BATCH_BYTES))] * BATCHES})
    world.reads.pace = CatchUpThrottle(10**12, world.clock)  # always due
    brought = [0, 0]
    for _ in range(2 * BATCHES):
        world.reads.pace.record_followed()
        answer = partitions_of(await world.fetch(asking({0: 0, 1: BATCHES})))
        for number, data in answer.items():
            brought[number] += bool(data.records)
    assert min(brought) >= BATCHES // 2, f"answers with records of the one and of the other: {brought}"


async def test_who_only_replays_waits_for_his_turn(world: World) -> None:
    await filled(world)
    let_it_be_history(world)
    pace = world.reads.pace = CatchUpThrottle(SLOW, world.clock)
    pace.record_followed()
    began_s = world.clock.monotonic_s()
    assert await pace.until_due(CatchUpSlot(), SLOW // 10, 0)
    assert partitions_of(await world.fetch(asking({0: 0})))[0].records
    assert world.clock.monotonic_s() - began_s >= 0.09


async def test_between_two_answers_of_history_everybody_else_has_a_turn(world: World) -> None:
    happened: list[str] = []

    async def put_together(what: str) -> None:
        async with world.reads.turn(is_history=what == "history"):
            happened.append(what)

    async def tick() -> None:
        for _ in range(20):
            happened.append("turn")
            await asyncio.sleep(0)

    await asyncio.gather(*(put_together("history") for _ in range(10)), put_together("tail"), tick())
    assert happened.count("history") == 10
    assert happened.index("tail") < 3, "whoever follows the end of the log waits for one answer of history at most"
    assert all(pair != ("history", "history") for pair in itertools.pairwise(happened))


async def test_who_reads_on_in_short_runs_has_the_next_ones_loaded_beyond_his_answers_plan(world: World) -> None:
    topic_id = await world.open(partitions=1)
    refs = [await world.produce(topic_id, {0: [batch_of(bytes(BATCH_BYTES))]}) for _ in range(12)]
    world.tail.remove((topic_id, 0))  # so there are plans
    let_it_be_history(world)
    told = record_told(world)
    for offset in range(2):
        answer = partitions_of(await world.fetch(asking({0: offset}, partition_max_bytes=BATCH_BYTES)))[0]
        assert list(values_of(answer)) == [offset]
    # What is left of a part that was begun comes with its reads; an answer's own plan has nothing beyond that.
    assert [read.segment for read in told] == refs[2 : 2 + PARTS_MAX]


async def test_plans_beyond_an_answer_have_a_bounded_number_of_short_runs() -> None:
    ahead = Prefetcher()
    ref = SegmentRef(bytes(16), 1, 1_000, "", "")
    ahead.note(KEY, 0, 10, [Extent(0, 4, ref, 0, 10, 0), Extent(5, 9, ref, 10, 30, 0)])
    assert ahead.plan_bytes_for(KEY, 10) == 20 * PLANNED_EXTENTS_MAX
    ahead.note(KEY, 0, 10, [Extent(0, 9, ref, 0, AHEAD_BYTES_MAX, 0)])
    assert ahead.plan_bytes_for(KEY, 10) == ahead.bytes_for(KEY, 10) == AHEAD_BYTES_MIN
    assert ahead.plan_bytes_for(KEY, 11) == 0, "nobody is there"


def record_told(world: World) -> list[SegmentRead]:
    told: list[SegmentRead] = []

    async def load_ahead(reads: Sequence[SegmentRead]) -> None:
        told.extend(reads)

    world.reads.load_ahead = load_ahead  # type: ignore[method-assign]
    return told
