"""Catch-up reads get cold data with few GETs, and do not delay tailing reads."""

import asyncio

import msgspec

from penstock.contracts.chunks import CHUNK_BYTES, RECENT_MS, STRIPE_CHUNKS
from penstock.contracts.codec import encode
from penstock.contracts.messages import CacheRequest, SegmentRead
from tests.unit.cacher.cacher_rig import BYTES, FAR, NOW_MS, OLD, SEGMENT, SIZE, Rig, born, from_memory


async def test_a_sequential_catch_up_read_loads_neighbours_with_one_get_and_the_next_chunks_too() -> None:
    async with Rig() as rig:
        read = SegmentRead(OLD, 10, 20, ahead=2 * CHUNK_BYTES)
        assert await rig.ask(read) == ([20], BYTES[10:30])
        assert rig.store.gets == [(0, 3 * CHUNK_BYTES)]
        assert await rig.ask(SegmentRead(OLD, 2 * CHUNK_BYTES, 9)) == ([9], BYTES[2 * CHUNK_BYTES :][:9])
        assert len(rig.store.gets) == 1


async def test_read_ahead_stays_within_a_stripe_and_loads_no_cached_chunk_again() -> None:
    async with Rig() as rig:
        await rig.ask(SegmentRead(OLD, CHUNK_BYTES, 1))
        await rig.ask(SegmentRead(OLD, 0, 1, ahead=len(BYTES)))
        rest = (STRIPE_CHUNKS - 2) * CHUNK_BYTES
        while len(rig.cache) < STRIPE_CHUNKS:
            await asyncio.sleep(0)
        assert rig.store.gets == [(CHUNK_BYTES, CHUNK_BYTES), (0, CHUNK_BYTES), (2 * CHUNK_BYTES, rest)]


async def test_there_is_no_read_ahead_for_tailing_reads() -> None:
    async with Rig() as rig:
        large = msgspec.structs.replace(FAR, size_bytes=len(BYTES))
        await rig.ask(SegmentRead(large, 0, 1, ahead=len(BYTES)))
        assert rig.store.gets == [(0, STRIPE_CHUNKS * CHUNK_BYTES)]


async def test_a_segment_older_than_a_minute_is_cold() -> None:
    async with Rig() as rig:
        await rig.writer_answers(from_memory)
        aged = msgspec.structs.replace(SEGMENT, segment_id=born(NOW_MS - RECENT_MS - 1))
        assert await rig.ask(SegmentRead(aged, 0, 1)) == ([-1], b"")  # the store was asked, but has no such object
        assert rig.writer_requests == []
        assert len(rig.store.gets) == 1


async def test_a_request_only_for_loads_is_not_answered() -> None:
    async with Rig() as rig:
        request = encode(CacheRequest([SegmentRead(OLD, 0, 1, ahead=CHUNK_BYTES)], loads_only=True))
        await rig.client.publish("penstock.c.cache.z.cacher", request)
        while len(rig.cache) < 2:
            await asyncio.sleep(0)
        assert await rig.ask(SegmentRead(OLD, CHUNK_BYTES, 5)) == ([5], BYTES[CHUNK_BYTES : CHUNK_BYTES + 5])
        assert rig.store.gets == [(0, 2 * CHUNK_BYTES)]


async def test_nothing_is_loaded_ahead_while_readers_wait_for_loads() -> None:
    async with Rig(loads_bytes_max=2 * SIZE) as rig:
        rig.store.gate.clear()
        waiting = asyncio.create_task(rig.ask(SegmentRead(OLD, 0, 5)))
        while not rig.store.running:
            await asyncio.sleep(0)
        request = encode(CacheRequest([SegmentRead(OLD, CHUNK_BYTES, 1)], loads_only=True))
        await rig.client.publish("penstock.c.cache.z.cacher", request)
        tailing = asyncio.create_task(rig.ask(SegmentRead(FAR, 0, 5)))
        while rig.store.running < 2:
            await asyncio.sleep(0)
        rig.store.gate.set()
        assert (await waiting, await tailing) == (([5], BYTES[:5]), ([5], BYTES[:5]))
        assert rig.store.gets == [(0, CHUNK_BYTES), (0, SIZE)]


async def test_no_more_is_loaded_ahead_than_there_is_memory_for() -> None:
    async with Rig(loads_bytes_max=4 * CHUNK_BYTES) as rig:  # half of it for catch-up reads
        rig.store.gate.clear()
        old = [msgspec.structs.replace(OLD, segment_id=born(NOW_MS, number)) for number in range(1, 7)]
        request = encode(CacheRequest([SegmentRead(segment, 0, 1) for segment in old], loads_only=True))
        await rig.client.publish("penstock.c.cache.z.cacher", request)
        await rig.client.publish("penstock.c.cache.z.cacher", request)
        while rig.store.running < 2:
            await asyncio.sleep(0)
        reading = asyncio.create_task(rig.ask(SegmentRead(OLD, 0, 5)))
        while not rig.server.waiting_count:
            await asyncio.sleep(0)
        rig.store.gate.set()
        assert await reading == ([5], BYTES[:5])
        assert len(rig.store.gets) == 3
