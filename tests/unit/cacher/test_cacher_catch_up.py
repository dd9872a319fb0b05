"""Whoever replays gets old data with few GETs, and never takes from those who follow the end of the log."""

import asyncio

import msgspec

from penstock.contracts.chunks import CHUNK_BYTES, RECENT_MS, STRIPE_CHUNKS
from penstock.contracts.codec import encode
from penstock.contracts.messages import CacheRequest, SegmentRead
from tests.unit.cacher.cacher_rig import BYTES, FAR, NOW_MS, OLD, SEGMENT, SIZE, Rig, born, from_memory


async def test_a_sequential_reader_of_history_gets_neighbours_with_one_get_and_finds_the_next_here() -> None:
    async with Rig() as rig:
        read = SegmentRead(OLD, 10, 20, ahead=2 * CHUNK_BYTES)
        assert await rig.ask(read) == ([20], BYTES[10:30])
        assert rig.store.gets == [(0, 3 * CHUNK_BYTES)]
        assert await rig.ask(SegmentRead(OLD, 2 * CHUNK_BYTES, 9)) == ([9], BYTES[2 * CHUNK_BYTES :][:9])
        assert len(rig.store.gets) == 1


async def test_nobody_reads_ahead_beyond_a_stripe_or_loads_twice_what_is_here() -> None:
    async with Rig() as rig:
        await rig.ask(SegmentRead(OLD, CHUNK_BYTES, 1))
        await rig.ask(SegmentRead(OLD, 0, 1, ahead=len(BYTES)))
        rest = (STRIPE_CHUNKS - 2) * CHUNK_BYTES
        while len(rig.cache) < STRIPE_CHUNKS:
            await asyncio.sleep(0)
        assert rig.store.gets == [(CHUNK_BYTES, CHUNK_BYTES), (0, CHUNK_BYTES), (2 * CHUNK_BYTES, rest)]


async def test_nobody_reads_ahead_of_readers_of_new_data() -> None:
    async with Rig() as rig:
        large = msgspec.structs.replace(FAR, size_bytes=len(BYTES))
        await rig.ask(SegmentRead(large, 0, 1, ahead=len(BYTES)))
        assert rig.store.gets == [(0, STRIPE_CHUNKS * CHUNK_BYTES)]


async def test_what_was_written_a_minute_ago_is_history() -> None:
    async with Rig() as rig:
        await rig.writer_answers(from_memory)
        aged = msgspec.structs.replace(SEGMENT, segment_id=born(NOW_MS - RECENT_MS - 1))
        assert await rig.ask(SegmentRead(aged, 0, 1)) == ([-1], b"")  # no such object: but the store was asked
        assert rig.asked_of_writer == []
        assert len(rig.store.gets) == 1


async def test_what_is_only_to_be_loaded_is_not_answered() -> None:
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
