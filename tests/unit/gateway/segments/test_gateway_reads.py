"""Ranges of segments come from the cachers, or from the store if no cacher has them; always correct and bounded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import CHUNK_BYTES, STRIPE_CHUNKS
from penstock.contracts.codec import encode_with_payload
from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.messages import CacheReply, Presence, SegmentRead
from penstock.objectstore.errors import NotFound
from penstock_gateway.fetch.limits import ReadLimits
from penstock_gateway.segments.cache_ring import CacheRing, part_of
from penstock_gateway.segments.full_objects import FullObjectReads
from penstock_gateway.segments.limits import SegmentLimits
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.waiting import TIMEOUT_S, until
from tests.unit.gateway.gateway_fakes import FakeDirectory
from tests.unit.gateway.gateway_read_world import ZONE
from tests.unit.gateway.gateway_zone import REPLY_BYTES_MAX, SIZE, Zone, check, expected, segment

LIMITS = SegmentLimits()
CATCH_UP_BYTES_MAX = ReadLimits().fetched_bytes_max // ReadLimits().catch_up_fraction


@pytest.fixture
async def zone() -> AsyncIterator[Zone]:
    made = Zone()
    yield made
    for name in ["gateway", *made.cachers]:
        made.hub.kill(name)


async def test_without_cachers_the_store_is_read(zone: Zone) -> None:
    ref = await zone.put(segment(1, level=1))
    await check(zone, SegmentRead(ref, 5, 100), SegmentRead(ref, 299_990, 10))
    assert len(zone.store.gets) == 2
    assert zone.sample("store_gets") == 2
    assert zone.sample("read_bytes", {"source": "store"}) == 110


async def test_a_store_with_local_reads_is_read_and_no_cacher_is_asked(zone: Zone) -> None:
    zone.store.has_local_reads = True
    cacher = await zone.add_cacher("c1")
    new, old = await zone.put(segment(1)), await zone.put(segment(2, level=1))
    await check(zone, SegmentRead(new, 5, 100), SegmentRead(old, 299_990, 10))
    await zone.reads.load_ahead([SegmentRead(old, 0, 1, 100)])
    await zone.bus.flush()
    assert cacher.requests == []
    assert zone.sample("read_bytes", {"source": "local"}) == 110
    assert (zone.sample("read_bytes", {"source": "store"}), zone.sample("store_gets")) == (0, 0)


async def test_each_local_read_has_a_buffer_of_its_own_and_all_other_reads_may_be_shared(zone: Zone) -> None:
    ref = await zone.put(segment(1))
    for has_local_reads in (False, True):
        zone.store.has_local_reads = has_local_reads
        first, second = await zone.reads.read([SegmentRead(ref, 0, 100)] * 2)
        assert isinstance(first, memoryview) and isinstance(second, memoryview)
        assert first.readonly != has_local_reads
        if has_local_reads:
            first[:] = bytes(100)
            assert second == expected(SegmentRead(ref, 0, 100))


async def test_what_a_cacher_answers_is_never_writable(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    cacher.mangle = lambda reply, data: cast(bytes, bytearray(encode_with_payload(reply, [data])))
    (data,) = await zone.reads.read([SegmentRead(segment(1), 0, 100)])
    assert isinstance(data, memoryview) and data.readonly


async def test_a_local_read_that_fails_does_not_fail_the_others(zone: Zone) -> None:
    zone.store.has_local_reads = True
    ref = await zone.put(segment(1))
    absent, found = await zone.reads.read([SegmentRead(segment(2), 0, 100), SegmentRead(ref, 0, 100)])
    assert isinstance(absent, NotFound)
    assert found == expected(SegmentRead(ref, 0, 100))


async def test_reads_of_old_data_from_the_store_never_delay_those_of_new_data(zone: Zone) -> None:
    gate = asyncio.Event()
    running: list[str] = []
    get_range = zone.store.get_range

    async def gated(key: str, position: int, length: int) -> bytes:
        running.append(key)
        if "/1-" in key:
            await gate.wait()
        return await get_range(key, position, length)

    zone.store.get_range = gated  # type: ignore[method-assign]
    old = [await zone.put(segment(number, level=1)) for number in range(40)]
    catching_up = [asyncio.create_task(zone.reads.read([SegmentRead(ref, 0, 10)])) for ref in old]
    while len(running) < LIMITS.cold_store_reads_max:
        await asyncio.sleep(0)
    new = await zone.put(segment(99))
    await check(zone, SegmentRead(new, 0, 10))
    assert len(running) == LIMITS.cold_store_reads_max + 1
    gate.set()
    await asyncio.gather(*catching_up)


async def test_new_segments_of_the_flusher_in_the_process_come_from_it_and_no_cacher_is_asked(zone: Zone) -> None:
    flusher, cacher = await zone.add_own_flusher(), await zone.add_cacher("c1")
    new, merged = segment(1), segment(2, level=1)
    await check(zone, SegmentRead(new, 5, 100), SegmentRead(new, SIZE - 10, 10), SegmentRead(merged, 0, 10))
    assert [request.reads for request in flusher.requests] == [
        [SegmentRead(new, 5, 100), SegmentRead(new, SIZE - 10, 10)]
    ]
    assert [request.reads for request in cacher.requests] == [[SegmentRead(merged, 0, 10)]]
    assert zone.store.gets == []
    assert zone.sample("read_bytes", {"source": "cache"}) == 120


async def test_what_the_flusher_in_the_process_does_not_keep_any_more_comes_from_cachers(zone: Zone) -> None:
    flusher, cacher = await zone.add_own_flusher(), await zone.add_cacher("c1")
    flusher.lacks = lambda read: read.position == 0
    await check(zone, SegmentRead(segment(1), 0, 100), SegmentRead(segment(1), 100, 100))
    assert [request.reads for request in cacher.requests] == [[SegmentRead(segment(1), 0, 100)]]


async def test_a_flusher_in_the_process_that_gives_no_answer_costs_one_timeout(zone: Zone) -> None:
    flusher, cacher = await zone.add_own_flusher(), await zone.add_cacher("c1")
    zone.reads = zone.make(SegmentLimits(cacher_timeout_s=0.01))
    flusher.is_silent = True
    await check(zone, SegmentRead(segment(1), 0, 100))
    assert (len(flusher.requests), len(cacher.requests)) == (1, 1)
    assert zone.sample("cacher_failures", {"cause": "silent"}) == 1


async def test_neighbouring_ranges_are_one_get(zone: Zone) -> None:
    ref = await zone.put(segment(1, level=1))
    await check(zone, SegmentRead(ref, 200, 50), SegmentRead(ref, 0, 100), SegmentRead(ref, 100, 100))
    assert [get[1:] for get in zone.store.gets] == [(0, 250)]


async def test_without_cachers_a_new_segment_is_one_get_for_all_readers(zone: Zone) -> None:
    refs = [await zone.put(segment(number)) for number in (1, 2)]
    reads = [SegmentRead(ref, position, 50) for ref in refs for position in range(0, SIZE, SIZE // 10)]
    await asyncio.gather(*(check(zone, read) for read in reads))
    for read in reads:
        await check(zone, read)
    assert sorted(get[1:] for get in zone.store.gets) == [(0, SIZE)] * 2


async def test_the_bytes_kept_of_full_object_reads_are_bounded() -> None:
    loads: list[SegmentRef] = []

    async def load(ref: SegmentRef) -> bytes:
        loads.append(ref)
        return bytes(ref.size_bytes)

    full_reads = FullObjectReads(load, kept_bytes_max=100)
    for ref in (segment(1, size_bytes=40), segment(2, size_bytes=40), segment(3, size_bytes=40)):
        assert len(await full_reads.get(ref)) == 40
    assert full_reads.kept_bytes == 80
    await full_reads.get(segment(3, size_bytes=40))
    await full_reads.get(segment(1, size_bytes=40))
    assert [ref.segment_id[15] for ref in loads] == [1, 2, 3, 1]


async def test_an_empty_read_sends_no_request(zone: Zone) -> None:
    assert await zone.reads.read([]) == []


async def test_a_cacher_answers_many_ranges_at_once_and_the_store_is_not_read(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    await check(zone, *(SegmentRead(segment(number), number, 100) for number in range(1, 20)))
    assert len(cacher.requests) == 1
    assert zone.store.gets == []
    assert zone.sample("read_bytes", {"source": "cache"}) == 1900


async def test_equal_reads_at_the_same_time_share_one_request(zone: Zone) -> None:
    zone.reads = zone.make(SegmentLimits(cacher_timeout_s=TIMEOUT_S))
    cacher = await zone.add_cacher("c1")
    cacher.gate.clear()
    wanted = [SegmentRead(segment(number), 10, 100) for number in (1, 2, 3)]
    readings = [asyncio.create_task(check(zone, *wanted[first:], *wanted[:first])) for first in range(3)]
    other = asyncio.create_task(check(zone, *wanted[:2]))
    await until(lambda: len(zone.hub.published) == 2)  # the last has asked
    readings[0].cancel()
    cacher.gate.set()
    await asyncio.gather(*readings[1:], other)
    assert [len(request.reads) for request in cacher.requests] == [3, 2]
    await check(zone, *wanted)  # nothing is kept
    assert len(cacher.requests) == 3
    assert zone.sample("read_bytes", {"source": "cache"}) == 800


async def test_ranges_larger_than_a_message_are_requested_in_parts(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    await check(zone, SegmentRead(segment(1), 0, SIZE), SegmentRead(segment(2), 7, 150_000))
    assert len(cacher.requests) == 3
    assert all(sum(read.length for read in request.reads) <= REPLY_BYTES_MAX for request in cacher.requests)


async def test_every_segment_has_one_owner_and_all_owners_share_the_work(zone: Zone) -> None:
    for name in ("c1", "c2", "c3"):
        await zone.add_cacher(name)
    for _ in range(2):
        await check(zone, *(SegmentRead(segment(number), 0, 10) for number in range(60)))
    owned = [
        {read.segment.segment_id for request in cacher.requests for read in request.reads}
        for cacher in zone.cachers.values()
    ]
    assert all(owned)
    assert sum(map(len, owned)) == 60


async def test_above_level_0_each_stripe_has_its_own_owner(zone: Zone) -> None:
    ref = segment(1, level=1, size_bytes=20 * CHUNK_BYTES)
    zone.directory.change([f"c{number}" for number in range(8)])
    ring = CacheRing(zone.directory, ZONE, DEFAULT_POOL, zone.clock)
    owners = {ring.owners(part_of(ref, chunk * CHUNK_BYTES), 1)[0] for chunk in range(20)}
    assert len(owners) > 1
    stripe_bytes = STRIPE_CHUNKS * CHUNK_BYTES
    assert part_of(ref, 0) == part_of(ref, stripe_bytes - 1) != part_of(ref, stripe_bytes)
    assert part_of(segment(1), 0) == part_of(segment(1), 5 * CHUNK_BYTES)


def test_the_ring_has_the_cachers_of_its_pool_only() -> None:
    directory = FakeDirectory()
    for number in range(9):
        directory.put(Presence("cacher", ZONE, f"c{number}", "1", pool=("default", "analytics")[number % 2]))
    ring = CacheRing(directory, ZONE, "analytics", ManualClock())
    found = {name for part in range(100) for name in ring.owners(str(part), 9)}
    assert found == {"c1", "c3", "c5", "c7"}
    assert not CacheRing(directory, ZONE, "empty", ManualClock()).has_others("c1")


async def test_a_range_that_the_owner_lacks_is_requested_from_the_next_in_the_ring(zone: Zone) -> None:
    cachers = [await zone.add_cacher(name) for name in ("c1", "c2")]
    owner_name = CacheRing(zone.directory, ZONE, DEFAULT_POOL, zone.clock).owners(part_of(segment(1), 0), 1)[0]
    owner, other = sorted(cachers, key=lambda cacher: cacher.name != owner_name)
    owner.lacks = lambda read: read.position == 50
    await check(zone, SegmentRead(segment(1), 0, 10), SegmentRead(segment(1), 50, 10))
    assert [read.position for request in other.requests for read in request.reads] == [50]
    assert zone.store.gets == []


async def test_a_range_that_no_cacher_has_comes_from_the_store(zone: Zone) -> None:
    for name in ("c1", "c2", "c3"):
        (await zone.add_cacher(name)).lacks = lambda read: True
    ref = await zone.put(segment(1))
    await check(zone, SegmentRead(ref, 0, 10))
    assert sum(len(cacher.requests) for cacher in zone.cachers.values()) == LIMITS.owners_asked_max
    assert len(zone.store.gets) == 1


async def test_a_cacher_that_is_gone_is_replaced_and_avoided_for_a_while(zone: Zone) -> None:
    ref = await zone.put(segment(1))
    zone.directory.change(["gone"])
    await check(zone, SegmentRead(ref, 0, 10))
    await check(zone, SegmentRead(ref, 0, 10))
    assert zone.sample("cacher_failures", {"cause": "gone"}) == 1
    zone.clock.now_s += LIMITS.gone_avoided_s
    await check(zone, SegmentRead(ref, 0, 10))
    assert zone.sample("cacher_failures", {"cause": "gone"}) == 2


async def test_a_silent_cacher_costs_one_time_out(zone: Zone) -> None:
    zone.reads = zone.make(SegmentLimits(cacher_timeout_s=0.01))
    cacher = await zone.add_cacher("c1")
    cacher.is_silent = True
    ref = await zone.put(segment(1))
    for _ in range(3):
        await check(zone, SegmentRead(ref, 0, 10))
    assert len(cacher.requests) == 1
    assert zone.sample("cacher_failures", {"cause": "silent"}) == 1


@pytest.mark.parametrize(
    "mangle",
    [
        lambda reply, data: b"",
        lambda reply, data: b"\x01\x00\x00\x00\x01\xc1",
        lambda reply, data: encode_with_payload(CacheReply([]), [data]),
        lambda reply, data: encode_with_payload(CacheReply([10, 10]), [data]),
        lambda reply, data: encode_with_payload(CacheReply([9]), [data[:9]]),
        lambda reply, data: encode_with_payload(CacheReply([-2]), [b""]),
        lambda reply, data: encode_with_payload(reply, [data[:9]]),
        lambda reply, data: encode_with_payload(reply, [data, b"x"]),
    ],
)
async def test_an_answer_that_does_not_fit_the_request_is_not_used(
    zone: Zone, mangle: Callable[[CacheReply, bytes], bytes]
) -> None:
    cacher = await zone.add_cacher("c1")
    cacher.mangle = mangle
    ref = await zone.put(segment(1))
    await check(zone, SegmentRead(ref, 0, 10))
    assert len(zone.store.gets) == 1
    assert zone.sample("cacher_failures", {"cause": "corrupt"}) == 1


async def test_one_segment_that_cannot_be_read_does_not_fail_the_others(zone: Zone) -> None:
    ref = await zone.put(segment(1))
    missing, found = await zone.reads.read([SegmentRead(segment(2), 0, 10), SegmentRead(ref, 0, 10)])
    assert isinstance(missing, NotFound)
    assert found == expected(SegmentRead(ref, 0, 10))


async def test_a_range_with_a_part_that_cannot_be_read_fails(zone: Zone) -> None:
    cacher = await zone.add_cacher("c1")
    cacher.lacks = lambda read: read.position > 0
    (data,) = await zone.reads.read([SegmentRead(segment(1), 0, SIZE)])
    assert isinstance(data, NotFound)


async def test_a_store_that_answers_short_is_corrupt(zone: Zone) -> None:
    ref = await zone.put(segment(1))
    zone.store.answer = lambda data: data[:-1]
    (data,) = await zone.reads.read([SegmentRead(ref, 0, 10)])
    assert isinstance(data, Corrupt)


async def test_a_store_that_does_not_answer_is_unavailable(zone: Zone) -> None:
    def fail(data: bytes) -> bytes:
        raise Unavailable("the store does not answer")

    ref = await zone.put(segment(1))
    zone.store.answer = fail
    (data,) = await zone.reads.read([SegmentRead(ref, 0, 10)])
    assert isinstance(data, Unavailable)


async def test_a_new_cacher_is_asked_once_it_is_in_the_directory(zone: Zone) -> None:
    ref = await zone.put(segment(1))
    await check(zone, SegmentRead(ref, 0, 10))
    cacher = await zone.add_cacher("c1")
    await check(zone, SegmentRead(ref, 0, 10))
    assert len(cacher.requests) == 1


async def test_no_more_bytes_are_in_flight_than_the_window_allows(zone: Zone) -> None:
    zone.reads = zone.make(SegmentLimits(window_bytes=250_000, cacher_timeout_s=TIMEOUT_S))
    cacher = await zone.add_cacher("c1")
    cacher.gate.clear()
    both = [asyncio.create_task(check(zone, SegmentRead(segment(number), 0, 150_000))) for number in (1, 2)]
    await until(lambda: cacher.requests)
    assert len(cacher.requests) == 1
    cacher.gate.set()
    await asyncio.gather(*both)
    assert len(cacher.requests) == 2


async def test_a_prefetch_is_sent_to_its_owner_once_and_not_waited_for(zone: Zone) -> None:
    cachers = [await zone.add_cacher(name) for name in ("c1", "c2")]
    reads = [SegmentRead(segment(number, level=1), 0, 1, ahead=50) for number in range(10)]
    await zone.reads.load_ahead(reads)
    await until(lambda: sum(len(request.reads) for cacher in cachers for request in cacher.requests) == len(reads))
    assert [len(cacher.requests) for cacher in cachers] == [1, 1]
    assert all(request.loads_only for cacher in cachers for request in cacher.requests)
    assert zone.store.gets == []


def reserve_for_catch_up(zone: Zone) -> contextlib.AbstractAsyncContextManager[bool]:
    """All the memory that catch-up reads may have."""
    return zone.log_reader.reserve(CATCH_UP_BYTES_MAX, is_catch_up=True)


async def test_catch_up_reads_wait_for_each_other_and_no_other_read_waits_for_them(zone: Zone) -> None:
    first, second = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
    await first.enter_async_context(reserve_for_catch_up(zone))
    waiting = asyncio.create_task(second.enter_async_context(reserve_for_catch_up(zone)))
    async with zone.log_reader.reserve(CATCH_UP_BYTES_MAX, is_catch_up=False):
        assert not waiting.done()
    await first.aclose()
    await waiting
    await second.aclose()


async def test_a_catch_up_read_queued_when_new_data_arrives_reads_nothing_and_obeys_the_throttle(
    zone: Zone,
) -> None:
    async with contextlib.AsyncExitStack() as first, contextlib.AsyncExitStack() as second:
        assert await first.enter_async_context(reserve_for_catch_up(zone))
        waiting = asyncio.create_task(second.enter_async_context(reserve_for_catch_up(zone)))
        await asyncio.sleep(0)
        zone.throttle.record_tailing_read()
        await first.aclose()
        assert not await waiting
    async with reserve_for_catch_up(zone) as may_read:
        assert may_read
