"""Requests for ranges are answered from the cache, the writer or the store, never with wrong bytes."""

import asyncio

import msgspec

from penstock.contracts.chunks import CHUNK_BYTES, STRIPE_CHUNKS
from penstock.contracts.codec import encode_with_payload
from penstock.contracts.messages import CacheReply, Presence, SegmentRead
from penstock_cacher.chunks import chunks_of
from tests.unit.cacher.cacher_rig import BYTES, FAR, NOW_MS, OLD, SEGMENT, SIZE, Rig, born, from_memory, not_here


async def test_ranges_come_from_the_store_with_one_get_for_a_new_segment_and_then_from_the_cache() -> None:
    async with Rig() as rig:
        reads = [SegmentRead(FAR, 10, 20), SegmentRead(FAR, CHUNK_BYTES - 5, 10), SegmentRead(FAR, SIZE - 1, 1)]
        expected = BYTES[10:30] + BYTES[CHUNK_BYTES - 5 : CHUNK_BYTES + 5] + BYTES[SIZE - 1 : SIZE]
        assert await rig.ask(*reads) == ([20, 10, 1], expected)
        assert rig.store.gets == [(0, SIZE)]
        assert await rig.ask(*reads) == ([20, 10, 1], expected)
        assert len(rig.store.gets) == 1
        assert rig.loads("store") == 1


async def test_a_new_segment_of_another_zone_is_one_get_for_all_readers_and_ranges() -> None:
    async with Rig() as rig:
        rig.store.gate.clear()
        positions = (SIZE - 1, 0, CHUNK_BYTES, 5)
        readers = [asyncio.create_task(rig.ask(SegmentRead(FAR, position, 1))) for position in positions]
        while rig.server.waiting_count < len(positions):
            await asyncio.sleep(0)
        rig.store.gate.set()
        answers = await asyncio.gather(*readers)
        assert answers == [([1], BYTES[position : position + 1]) for position in positions]
        assert rig.store.gets == [(0, SIZE)]


async def test_only_the_missing_chunks_of_a_new_segment_are_loaded() -> None:
    async with Rig() as rig:
        first, last = chunks_of(SegmentRead(FAR, 0, SIZE))
        rig.cache.put(first, BYTES[: first.size_bytes], is_cold=False)
        assert await rig.ask(SegmentRead(FAR, SIZE - 1, 1)) == ([1], BYTES[SIZE - 1 : SIZE])
        assert rig.store.gets == [(last.position, last.size_bytes)]


async def test_a_new_segment_of_unusual_size_is_loaded_a_stripe_at_a_time() -> None:
    async with Rig() as rig:
        large = msgspec.structs.replace(FAR, size_bytes=len(BYTES))
        stripe_bytes = STRIPE_CHUNKS * CHUNK_BYTES
        assert await rig.ask(SegmentRead(large, stripe_bytes - 1, 2)) == ([2], BYTES[stripe_bytes - 1 :][:2])
        assert sorted(rig.store.gets) == [(0, stripe_bytes), (stripe_bytes, len(BYTES) - stripe_bytes)]


async def test_a_hundred_readers_at_once_cost_one_get() -> None:
    async with Rig() as rig:
        rig.store.gate.clear()
        readers = [asyncio.create_task(rig.ask(SegmentRead(FAR, number, 2))) for number in range(100)]
        while rig.server.waiting_count < 100:
            await asyncio.sleep(0)
        rig.store.gate.set()
        answers = await asyncio.gather(*readers)
        assert answers == [([2], BYTES[number : number + 2]) for number in range(100)]
        assert rig.store.gets == [(0, SIZE)]


async def test_a_writer_in_the_same_zone_is_asked_before_the_store() -> None:
    async with Rig() as rig:
        await rig.writer_answers(from_memory)
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert rig.store.gets == []
        assert [(read.position, read.length) for read in rig.writer_requests[0].reads] == [(0, CHUNK_BYTES)]
        assert rig.loads("writer") == 1
        assert await rig.ask(SegmentRead(SEGMENT, 6, 5)) == ([5], BYTES[6:11])
        assert len(rig.writer_requests) == 1


async def test_the_store_is_asked_when_the_writer_no_longer_has_it() -> None:
    async with Rig() as rig:
        await rig.writer_answers(not_here)
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert len(rig.writer_requests) == 1
        assert rig.loads("store") == 1


async def test_the_store_is_asked_when_the_writer_answers_with_the_wrong_number_of_bytes() -> None:
    async with Rig() as rig:
        await rig.writer_answers(lambda request: encode_with_payload(CacheReply([CHUNK_BYTES]), [b"short"]))
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert rig.loads("store") == 1


async def test_the_store_is_asked_when_the_writer_answers_nonsense() -> None:
    async with Rig() as rig:
        await rig.writer_answers(lambda request: b"nonsense")
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert rig.loads("store") == 1


async def test_the_store_is_asked_when_the_writer_is_gone() -> None:
    async with Rig() as rig:
        rig.directory.known["f1"] = Presence("flusher", "z", "f1", "1")
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert rig.loads("store") == 1


async def test_a_writer_of_another_zone_is_never_asked() -> None:
    async with Rig() as rig:
        await rig.writer_answers(from_memory)
        assert await rig.ask(SegmentRead(FAR, 5, 5)) == ([5], BYTES[5:10])
        assert rig.writer_requests == []


async def test_a_writer_of_another_pool_is_never_asked() -> None:
    async with Rig() as rig:
        await rig.writer_answers(from_memory)
        rig.directory.known["f1"] = msgspec.structs.replace(rig.directory.known["f1"], pool="analytics")
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert rig.writer_requests == []
        assert rig.loads("store") == 1


async def test_a_failed_load_is_answered_with_minus_one_and_retried_by_the_next_request() -> None:
    async with Rig() as rig:
        await rig.ask(SegmentRead(OLD, CHUNK_BYTES, 5))
        rig.store.broken = True
        lengths, payload = await rig.ask(SegmentRead(FAR, 0, 5), SegmentRead(OLD, CHUNK_BYTES, 5))
        assert (lengths, payload) == ([-1, 5], BYTES[CHUNK_BYTES : CHUNK_BYTES + 5])
        rig.store.broken = False
        assert await rig.ask(SegmentRead(FAR, 0, 5)) == ([5], BYTES[:5])


async def test_a_segment_that_is_not_in_the_store_is_answered_with_minus_one() -> None:
    async with Rig() as rig:
        gone = msgspec.structs.replace(FAR, segment_id=bytes(16))
        assert await rig.ask(SegmentRead(gone, 0, 5)) == ([-1], b"")


async def test_ranges_outside_of_their_segment_are_answered_with_minus_one() -> None:
    async with Rig() as rig:
        reads = [SegmentRead(FAR, SIZE, 1), SegmentRead(FAR, -1, 5), SegmentRead(FAR, 0, 5)]
        assert await rig.ask(*reads) == ([-1, -1, 5], BYTES[:5])


async def test_a_segment_shorter_than_its_reference_gives_no_bytes() -> None:
    async with Rig() as rig:
        longer = msgspec.structs.replace(FAR, size_bytes=len(BYTES) + 100)
        assert await rig.ask(SegmentRead(longer, 5 * CHUNK_BYTES, 5)) == ([-1], b"")


async def test_a_reply_never_exceeds_the_largest_message() -> None:
    async with Rig(message_bytes_max=2_000) as rig:
        reads = [SegmentRead(FAR, 0, 1_500), SegmentRead(FAR, 0, 1_500), SegmentRead(FAR, 7, 100)]
        assert await rig.ask(*reads) == ([1_500, -1, 100], BYTES[:1_500] + BYTES[7:107])


async def test_only_so_many_chunks_are_loaded_at_once() -> None:
    async with Rig(loads_bytes_max=2 * SIZE) as rig:
        rig.store.gate.clear()
        segments = [msgspec.structs.replace(FAR, segment_id=born(NOW_MS, number)) for number in range(6)]
        readers = [asyncio.create_task(rig.ask(SegmentRead(segment, 0, 1))) for segment in segments]
        while rig.server.waiting_count < 6 or rig.store.running < 2:
            await asyncio.sleep(0)
        rig.store.gate.set()
        await asyncio.gather(*readers)
        assert len(rig.store.gets) == 6
        assert rig.store.running_max == 2


async def test_catch_up_reads_leave_loads_for_new_data() -> None:
    async with Rig(loads_bytes_max=4 * CHUNK_BYTES) as rig:
        rig.store.gate.clear()
        old = [msgspec.structs.replace(FAR, segment_id=born(NOW_MS, number), level=1) for number in range(6)]
        catching_up = [asyncio.create_task(rig.ask(SegmentRead(segment, 0, 1))) for segment in old]
        while rig.server.waiting_count < 6 or rig.store.running < 2:
            await asyncio.sleep(0)
        tailing = asyncio.create_task(rig.ask(SegmentRead(FAR, 0, 1)))
        while rig.store.running < 3:
            await asyncio.sleep(0)
        assert [position for position, _ in rig.store.gets] == [0, 0, 0]
        rig.store.gate.set()
        assert (await tailing)[0] == [1]
        await asyncio.gather(*catching_up)
        assert rig.store.running_max <= 4


async def test_requests_above_the_limit_are_answered_at_once_with_the_cached_chunks() -> None:
    async with Rig(requests_bytes_max=CHUNK_BYTES) as rig:
        await rig.ask(SegmentRead(OLD, CHUNK_BYTES, 5))
        rig.store.gate.clear()
        waiting = asyncio.create_task(rig.ask(SegmentRead(OLD, 0, 5)))
        while not rig.store.running:
            await asyncio.sleep(0)
        lengths, _ = await rig.ask(SegmentRead(OLD, 0, 5), SegmentRead(OLD, CHUNK_BYTES, 5))
        assert lengths == [-1, 5]
        rig.store.gate.set()
        assert await waiting == ([5], BYTES[:5])


async def test_a_request_above_the_limit_of_an_idle_cacher_is_answered_as_far_as_the_limit_allows() -> None:
    async with Rig(requests_bytes_max=2 * CHUNK_BYTES) as rig:
        reads = [SegmentRead(OLD, index * CHUNK_BYTES, 5) for index in range(4)]
        parts = [BYTES[read.position : read.position + 5] for read in reads]
        assert await rig.ask(*reads) == ([5, 5, -1, -1], parts[0] + parts[1])
        assert await rig.ask(*reads[1:]) == ([5, 5, -1], parts[1] + parts[2])
        assert rig.metric("refused_reads_total", reason="overload") == 3


async def test_a_malformed_request_is_dropped_and_the_next_is_served() -> None:
    async with Rig() as rig:
        await rig.client.publish("penstock.c.cache.z.cacher", b"nonsense")
        assert await rig.ask(SegmentRead(FAR, 0, 5)) == ([5], BYTES[:5])


async def test_the_cache_stays_within_its_bound() -> None:
    async with Rig(cache_bytes=CHUNK_BYTES + 2_000) as rig:
        await rig.ask(SegmentRead(FAR, 0, 5), SegmentRead(FAR, CHUNK_BYTES, 5))
        assert rig.cache.held_bytes <= CHUNK_BYTES + 2_000
        await rig.ask(SegmentRead(msgspec.structs.replace(FAR, size_bytes=CHUNK_BYTES), 0, 5))
        assert rig.cache.held_bytes <= CHUNK_BYTES + 2_000
        assert rig.metric("evictions_total") >= 1


async def test_a_load_after_the_end_of_another_load_uses_the_cache() -> None:
    async with Rig() as rig:
        (chunk,) = chunks_of(SegmentRead(FAR, 0, 1))
        assert await rig.reads.load(chunk, FAR) == await rig.reads.load(chunk, FAR)
        assert len(rig.store.gets) == 1


async def test_a_load_that_waited_for_memory_uses_the_chunk_that_its_neighbour_loaded_meanwhile() -> None:
    async with Rig(loads_bytes_max=SIZE) as rig:
        rig.store.gate.clear()
        first = asyncio.create_task(rig.ask(SegmentRead(FAR, 0, 5)))
        await until_loading(rig)
        second = asyncio.create_task(rig.ask(SegmentRead(FAR, SIZE - 5, 5)))
        for _ in range(20):  # now the second load waits for memory
            await asyncio.sleep(0)
        rig.store.gate.set()
        assert (await first, await second) == (([5], BYTES[:5]), ([5], BYTES[SIZE - 5 : SIZE]))
        assert rig.store.gets == [(0, SIZE)]


async def test_a_load_during_the_end_of_another_load_leaves_nothing_behind() -> None:
    async with Rig(cache_bytes=0) as rig:
        await rig.writer_answers(from_memory)
        (chunk,) = chunks_of(SegmentRead(FAR, 0, 1))
        rig.store.gate.clear()

        async def load_at_the_end() -> None:
            await rig.store.gate.wait()
            await rig.reads.load(chunk, FAR)

        loads = [asyncio.create_task(rig.reads.load(chunk, FAR))]
        await until_loading(rig)
        loads.append(asyncio.create_task(load_at_the_end()))
        await asyncio.sleep(0)
        rig.store.gate.set()
        await asyncio.gather(*loads)
        assert len(rig.store.gets) == 1
        await rig.reads.load(chunk, SEGMENT)
        assert len(rig.writer_requests) == 1


async def until_loading(rig: Rig) -> None:
    while not rig.store.running:
        await asyncio.sleep(0)
