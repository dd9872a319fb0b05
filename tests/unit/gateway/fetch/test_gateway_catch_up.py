"""Many and large catch-up reads neither fill the memory nor delay tailing reads."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.chunks import RECENT_MS
from penstock.contracts.ids import TopicId
from penstock.contracts.messages import SegmentRead
from penstock_gateway.fetch.catch_up_throttle import CatchUpSlot
from penstock_gateway.fetch.limits import FetchLimits, ReadLimits
from penstock_gateway.fetch.log_reader import Segments
from penstock_gateway.fetch.prefetch import AHEAD_BYTES_MAX, AHEAD_BYTES_MIN, PARTS_MAX, PLANNED_EXTENTS_MAX, Prefetcher
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.response_memory import CATCH_UP_FRACTION, ResponseMemory
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.segments.segment_reader import Data
from tests.testkit.cancelling import turns
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import World, asking, batch_of, partitions_of, values_of

KIB = 1024
FOR_EVER_MS = 300_000
CLIENTS, ASKED_BYTES = 200, 50_000_000
UNSENT_BYTES, FETCHED_BYTES = 2_000 * KIB, 1_000 * KIB
BATCH_BYTES = 50 * KIB
BATCHES = 8
LOOP_ITERATIONS = 100
SLOW = 4 * 1024 * KIB  # bytes per second
KEY = (bytes(16), 0)


READ = ReadLimits(memory_wait_s=0.01)


def limits(read: ReadLimits = READ, **fetch: int) -> GatewayLimits:
    return GatewayLimits(read=read, fetch=FetchLimits(**fetch))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@contextlib.asynccontextmanager
async def opened(chosen: GatewayLimits | None = None, **options: Any) -> AsyncIterator[World]:
    made = World(limits=chosen or limits(), unsent_bytes_max=UNSENT_BYTES, **options)
    yield made
    assert made.log_reader.held_bytes == made.log_reader.catch_up_held_bytes == 0, "a fetch kept bytes of a budget"
    await made.close()


async def filled(world: World, partitions: int = 1) -> TopicId:
    topic_id = await world.open(partitions=partitions)
    batch = batch_of(bytes(BATCH_BYTES))
    await world.produce(topic_id, {number: [batch] * BATCHES for number in range(partitions)})
    return topic_id


def make_data_old(world: World) -> None:
    """Make all data written so far old, so that only catch-up readers read it."""
    world.clock.later_ms = RECENT_MS + 1


async def size_of_answers(world: World, clients: int) -> int:
    """The bytes that clients get if they ask at once for far too much, and take none of their answers."""

    async def get() -> int:
        request = asking({0: 0}, max_bytes=ASKED_BYTES, partition_max_bytes=ASKED_BYTES)
        answer = partitions_of(await world.fetch(request))[0]
        assert answer.error_code == 0
        size_bytes = len(answer.records or b"")
        world.response_memory.change(size_bytes)
        return size_bytes

    gate = asyncio.Event()
    get_range = world.store.get_range

    async def get_range_late(key: str, position: int, length: int) -> bytes:
        await gate.wait()
        return await get_range(key, position, length)

    world.store.get_range = get_range_late  # type: ignore[method-assign]
    getting = [asyncio.create_task(get()) for _ in range(clients)]
    await until(lambda: bool(world.log_reader.held_bytes))
    for _ in range(LOOP_ITERATIONS):  # until all fetches are in the queue
        await asyncio.sleep(0)
    gate.set()
    return sum(await asyncio.gather(*getting))


async def test_two_hundred_clients_that_ask_for_fifty_megabytes_each_and_take_nothing_are_bounded() -> None:
    async with opened(limits(ReadLimits(memory_wait_s=0.01, fetched_bytes_max=FETCHED_BYTES))) as world:
        await filled(world)
        got = await size_of_answers(world, CLIENTS)
    assert UNSENT_BYTES <= got <= UNSENT_BYTES + FETCHED_BYTES
    assert 20 * got < CLIENTS * BATCHES * BATCH_BYTES, "the clients asked for too little"


async def test_catch_up_readers_that_take_nothing_leave_memory_for_tailing_readers() -> None:
    read = ReadLimits(memory_wait_s=0.01, fetched_bytes_max=FETCHED_BYTES, catch_up_fraction=2)
    async with opened(limits(read)) as world:
        await filled(world)
        make_data_old(world)
        got = await size_of_answers(world, CLIENTS)
        assert 0 < got <= UNSENT_BYTES // CATCH_UP_FRACTION + FETCHED_BYTES // 2 < UNSENT_BYTES
        assert await world.response_memory.wait(0)


async def test_a_catch_up_reader_continues_when_other_clients_take_their_answers() -> None:
    memory = ResponseMemory(10)
    memory.change(5)
    assert await memory.wait(0)
    assert not await memory.wait(0.001, is_catch_up=True)
    waiting = asyncio.create_task(memory.wait(30, is_catch_up=True))
    await asyncio.sleep(0)
    memory.change(-1)
    assert await waiting


@pytest.mark.parametrize("is_old", [False, True])
async def test_answers_with_old_data_are_short(*, is_old: bool) -> None:
    async with opened(limits(catch_up_bytes_max=3 * BATCH_BYTES)) as world:
        await filled(world)
        if is_old:
            make_data_old(world)
        answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    size_bytes = len(answer.records or b"")
    assert (2 * BATCH_BYTES < size_bytes <= 3 * BATCH_BYTES) if is_old else size_bytes > BATCHES * BATCH_BYTES


async def test_while_a_client_tails_answers_with_old_data_are_shorter_still() -> None:
    async with opened(limits(throttled_bytes_max=2 * BATCH_BYTES)) as world:
        topic_id = await filled(world)
        tailing = asyncio.create_task(world.fetch(asking({0: BATCHES}, max_wait_ms=FOR_EVER_MS)))
        await until(lambda: bool(world.tail.watched_partitions))
        assert not world.throttle.is_active, "there is no new data yet"
        await world.produce(topic_id, {0: [batch_of(b"new")]})
        await tailing
        assert world.throttle.is_active
        make_data_old(world)
        answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    assert BATCH_BYTES < len(answer.records or b"") <= 2 * BATCH_BYTES


@in_virtual_time
async def test_a_client_that_catches_up_in_one_partition_and_tails_another_gets_new_data_at_once() -> None:
    async with opened(bytes_per_second=SLOW) as world:
        topic_id = await filled(world, partitions=2)
        make_data_old(world)
        await world.produce(topic_id, {1: [batch_of(b"new")]})
        world.throttle.record_tailing_read()
        assert await world.throttle.wait(CatchUpSlot(), SLOW // 4, 0)  # another client has the next quarter of a second
        request = asking({0: 0, 1: BATCHES})
        throttled = partitions_of(await world.fetch(request))
        assert not throttled[0].records
        assert values_of(throttled[1]) == {BATCHES: b"new"}
        await asyncio.sleep(0.25)
        world.throttle.record_tailing_read()
        both = partitions_of(await world.fetch(request))
        assert both[0].records
        assert both[1].records == throttled[1].records


async def test_old_data_gets_its_part_when_there_is_more_new_data_than_an_answer_takes() -> None:
    always_due = 10**12
    async with opened(limits(throttled_bytes_max=2 * BATCH_BYTES), bytes_per_second=always_due) as world:
        topic_id = await filled(world, partitions=2)
        make_data_old(world)
        await world.produce(topic_id, {1: [batch_of(bytes(BATCH_BYTES))] * BATCHES})
        brought = [0, 0]
        for _ in range(2 * BATCHES):
            world.throttle.record_tailing_read()
            answer = partitions_of(await world.fetch(asking({0: 0, 1: BATCHES})))
            for number, data in answer.items():
                brought[number] += bool(data.records)
    assert min(brought) >= BATCHES // 2, f"answers with records of each partition: {brought}"


async def test_a_client_that_only_catches_up_waits_for_its_place_in_the_queue() -> None:
    async with opened(bytes_per_second=SLOW) as world:
        await filled(world)
        make_data_old(world)
        world.throttle.record_tailing_read()
        began_s = world.clock.monotonic_s()
        assert await world.throttle.wait(CatchUpSlot(), SLOW // 10, 0)
        assert partitions_of(await world.fetch(asking({0: 0})))[0].records
        assert world.clock.monotonic_s() - began_s >= 0.09


@in_virtual_time
async def test_clients_that_leave_before_their_turn_delay_no_catch_up_read() -> None:
    async with opened(bytes_per_second=SLOW) as world:
        await filled(world)
        make_data_old(world)
        world.throttle.record_tailing_read()
        assert await world.throttle.wait(CatchUpSlot(), SLOW // 4, 0)  # another client has the next quarter of a second
        for count in range(100):  # at any turn of the loop, some of them in the queue
            fetch = asyncio.create_task(world.fetch(asking({0: 0})))
            await turns(count)
            fetch.cancel()
            world.client.close()
            await asyncio.wait([fetch])
            world.client = Client(host="127.0.0.1", zone="z")
        began_s = world.clock.monotonic_s()
        assert partitions_of(await world.fetch(asking({0: 0})))[0].records
        assert world.clock.monotonic_s() - began_s == pytest.approx(0.25, abs=0.01)


async def test_between_two_answers_of_old_data_all_other_tasks_run(world: World) -> None:
    events: list[str] = []

    async def assemble(kind: str) -> None:
        async with world.log_reader.assembling(is_catch_up=kind == "old"):
            events.append(kind)

    async def tick() -> None:
        for _ in range(20):
            events.append("tick")
            await asyncio.sleep(0)

    await asyncio.gather(*(assemble("old") for _ in range(10)), assemble("tail"), tick())
    assert events.count("old") == 10
    assert events.index("tail") < 3, "a tailing read waits for one answer of old data at most"
    assert all(pair != ("old", "old") for pair in itertools.pairwise(events))


@contextlib.asynccontextmanager
async def recorded_loads() -> AsyncIterator[tuple[World, list[SegmentRef], list[SegmentRead]]]:
    """A partition of twelve old segments with a batch each, and the ranges that cachers are asked to load."""
    recording: list[LoadRecorder] = []

    def record(segments: Segments) -> Segments:
        recording.append(LoadRecorder(segments))
        return recording[0]

    async with opened(wrap_segments=record) as world:
        topic_id = await world.open(partitions=1)
        refs = [await world.produce(topic_id, {0: [batch_of(bytes(BATCH_BYTES))]}) for _ in range(12)]
        world.tail.remove((topic_id, 0))  # so that reads need plans
        make_data_old(world)
        yield world, refs, recording[0].loads


async def read_one_batch(world: World, offset: int) -> None:
    answer = partitions_of(await world.fetch(asking({0: offset}, partition_max_bytes=BATCH_BYTES)))[0]
    assert list(values_of(answer)) == [offset]


async def test_a_sequential_reader_of_short_runs_has_the_next_ones_loaded_beyond_its_answer() -> None:
    async with recorded_loads() as (world, refs, loads):
        for offset in range(2):
            await read_one_batch(world, offset)
    # The reader's own reads load the rest of its part; the plan of one answer lists nothing after that.
    assert [read.segment for read in loads] == refs[2 : 2 + PARTS_MAX]


async def test_the_next_runs_of_several_sequential_readers_are_loaded_once() -> None:
    async with recorded_loads() as (world, refs, loads):
        for offset in (0, 1, 1):
            await read_one_batch(world, offset)
    assert [read.segment for read in loads] == refs[2 : 2 + PARTS_MAX]


async def test_plans_beyond_an_answer_have_a_bounded_number_of_short_runs() -> None:
    ahead = Prefetcher()
    ref = SegmentRef(bytes(16), 1, 1_000, "", "")
    ahead.record(KEY, 0, 10, [Extent(0, 4, ref, 0, 10, 0), Extent(5, 9, ref, 10, 30, 0)])
    assert ahead.plan_bytes_for(KEY, 10) == 20 * PLANNED_EXTENTS_MAX
    ahead.record(KEY, 0, 10, [Extent(0, 9, ref, 0, AHEAD_BYTES_MAX, 0)])
    assert ahead.plan_bytes_for(KEY, 10) == ahead.bytes_for(KEY, 10) == AHEAD_BYTES_MIN
    assert ahead.plan_bytes_for(KEY, 11) == 0, "no reader is at this offset"


class LoadRecorder:
    """Segments that are read as usual; ranges to load ahead are only recorded."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.loads: list[SegmentRead] = []

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]:
        return await self._segments.read(reads)

    async def load_ahead(self, reads: Sequence[SegmentRead]) -> None:
        self.loads.extend(reads)
