"""Requests for ranges are answered from the cache, the writer or the store, and never with wrong bytes."""

import asyncio
import random

import msgspec
from prometheus_client import CollectorRegistry

from cacher.chunk_cache import ChunkCache
from cacher.chunks import chunks_of
from cacher.metrics import CacherMetrics
from cacher.reads import ChunkReads
from cacher.serve import CacheServer
from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import CHUNK_BYTES, SPILL_BYTES_MAX
from penstock.contracts.codec import decode, decode_with_payload, encode, encode_with_payload
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.messages import CacheReply, CacheRequest, Presence, SegmentRead
from penstock.objectstore import NotFound
from penstock.runtime.clock import SystemClock
from penstock.segment.keys import segment_key
from tests.testkit.memory_bus import MemoryHub

REST = SPILL_BYTES_MAX + 1_000
SIZE = CHUNK_BYTES + REST
BYTES = random.Random(1).randbytes(6 * CHUNK_BYTES)
NOW_MS = 1_800_000_000_000


def born(now_ms: int, number: int = 0) -> SegmentId:
    return new_segment_id(now_ms, number.to_bytes(10))


SEGMENT = SegmentRef(born(NOW_MS), 0, SIZE, "f1", "z")
OLD = SegmentRef(born(NOW_MS), 1, len(BYTES), "", "")
FAR = msgspec.structs.replace(SEGMENT, zone="other")
GRACE_S = 20


class Store:
    """A store with one object, that counts its GETs and can be held up or broken."""

    def __init__(self) -> None:
        self.gets: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False
        self.running = 0
        self.running_most = 0

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.gets.append((position, length))
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        await self.gate.wait()
        self.running -= 1
        if self.broken:
            raise Unavailable("the store does not answer")
        if key not in (segment_key("", "c", level, SEGMENT.segment_id) for level in (0, 1)):
            raise NotFound(f"no object {key}")
        return BYTES[position : position + length]


class Clock(SystemClock):
    def now_ms(self) -> int:
        return NOW_MS


class Directory:
    def __init__(self) -> None:
        self.known: dict[str, Presence] = {}

    def get(self, instance: str) -> Presence | None:
        return self.known.get(instance)


class Rig:
    """A cacher on a memory bus, with a flusher beside it that may answer."""

    def __init__(
        self,
        *,
        cache_bytes: int = 64 * CHUNK_BYTES,
        loads_bytes_max: int = 8 * CHUNK_BYTES,
        requests_bytes_max: int = 64 * CHUNK_BYTES,
        message_bytes_max: int = 8 * 1024 * 1024,
    ) -> None:
        self.hub = MemoryHub(message_bytes_max)
        self.client = self.hub.connect("client")
        self.bus = self.hub.connect("cacher")
        self.flusher = self.hub.connect("flusher")
        self.store = Store()
        self.directory = Directory()
        self.cache = ChunkCache(cache_bytes)
        self.metrics = CacherMetrics(CollectorRegistry())
        self.reads = ChunkReads(
            cluster="c",
            zone="z",
            bus=self.bus,
            store=self.store,
            directory=self.directory,
            cache=self.cache,
            clock=Clock(),
            metrics=self.metrics,
            loads_bytes_max=loads_bytes_max,
        )
        self.server = CacheServer(
            reads=self.reads,
            message_bytes_max=message_bytes_max,
            requests_bytes_max=requests_bytes_max,
            metrics=self.metrics,
        )
        self.asked_of_writer: list[CacheRequest] = []

    async def __aenter__(self) -> "Rig":
        await self.bus.subscribe("penstock.c.cache.z.cacher", self.server.handle)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()
        await self.reads.close()
        for bus in (self.client, self.bus, self.flusher):
            await bus.close()
        assert self.server.waiting_bytes == 0

    async def writer_answers(self, answer: object) -> None:
        self.directory.known["f1"] = Presence("flusher", "z", "f1", "1")

        async def handle(inbound: object) -> None:
            request = decode(inbound.data, CacheRequest)
            self.asked_of_writer.append(request)
            await inbound.respond(answer(request))

        await self.flusher.subscribe("penstock.c.cache.z.f1", handle)

    async def ask(self, *reads: SegmentRead) -> tuple[list[int], bytes]:
        request = encode(CacheRequest(list(reads)))
        reply, payload = decode_with_payload(
            await self.client.request("penstock.c.cache.z.cacher", request, GRACE_S), CacheReply
        )
        return reply.lengths, bytes(payload)

    def loads(self, source: str) -> float:
        return self.metrics.loads.labels(source)._value.get()


def from_memory(request: CacheRequest) -> bytes:
    (read,) = request.reads
    return encode_with_payload(CacheReply([read.length]), [BYTES[read.position : read.position + read.length]])


def not_here(request: CacheRequest) -> bytes:
    return encode_with_payload(CacheReply([-1] * len(request.reads)), [])


async def test_ranges_come_from_the_store_in_aligned_chunks_and_then_from_the_cache() -> None:
    async with Rig() as rig:
        reads = [SegmentRead(FAR, 10, 20), SegmentRead(FAR, CHUNK_BYTES - 5, 10), SegmentRead(FAR, SIZE - 1, 1)]
        expected = BYTES[10:30] + BYTES[CHUNK_BYTES - 5 : CHUNK_BYTES + 5] + BYTES[SIZE - 1 : SIZE]
        assert await rig.ask(*reads) == ([20, 10, 1], expected)
        assert sorted(rig.store.gets) == [(0, CHUNK_BYTES), (CHUNK_BYTES, REST)]
        assert await rig.ask(*reads) == ([20, 10, 1], expected)
        assert len(rig.store.gets) == 2
        assert rig.loads("store") == 2


async def test_a_hundred_readers_at_once_cost_one_get() -> None:
    async with Rig() as rig:
        rig.store.gate.clear()
        readers = [asyncio.create_task(rig.ask(SegmentRead(FAR, number, 2))) for number in range(100)]
        while len(rig.server._tasks) < 100:
            await asyncio.sleep(0)
        rig.store.gate.set()
        answers = await asyncio.gather(*readers)
        assert answers == [([2], BYTES[number : number + 2]) for number in range(100)]
        assert rig.store.gets == [(0, CHUNK_BYTES)]


async def test_a_near_writer_is_asked_before_the_store() -> None:
    async with Rig() as rig:
        await rig.writer_answers(from_memory)
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert rig.store.gets == []
        assert [(read.position, read.length) for read in rig.asked_of_writer[0].reads] == [(0, CHUNK_BYTES)]
        assert rig.loads("writer") == 1
        assert await rig.ask(SegmentRead(SEGMENT, 6, 5)) == ([5], BYTES[6:11])
        assert len(rig.asked_of_writer) == 1


async def test_the_store_is_asked_when_the_writer_no_longer_has_it() -> None:
    async with Rig() as rig:
        await rig.writer_answers(not_here)
        assert await rig.ask(SegmentRead(SEGMENT, 5, 5)) == ([5], BYTES[5:10])
        assert len(rig.asked_of_writer) == 1
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
        assert rig.asked_of_writer == []


async def test_a_load_that_fails_is_answered_with_minus_one_and_tried_again_next_time() -> None:
    async with Rig() as rig:
        await rig.ask(SegmentRead(FAR, CHUNK_BYTES, 5))
        rig.store.broken = True
        lengths, payload = await rig.ask(SegmentRead(FAR, 0, 5), SegmentRead(FAR, CHUNK_BYTES, 5))
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


async def test_a_segment_shorter_than_it_is_said_to_be_gives_no_bytes() -> None:
    async with Rig() as rig:
        longer = msgspec.structs.replace(FAR, size_bytes=len(BYTES) + 100)
        assert await rig.ask(SegmentRead(longer, 5 * CHUNK_BYTES, 5)) == ([-1], b"")


async def test_a_reply_never_outgrows_the_largest_message() -> None:
    async with Rig(message_bytes_max=2_000) as rig:
        reads = [SegmentRead(FAR, 0, 1_500), SegmentRead(FAR, 0, 1_500), SegmentRead(FAR, 7, 100)]
        assert await rig.ask(*reads) == ([1_500, -1, 100], BYTES[:1_500] + BYTES[7:107])


async def test_only_so_many_chunks_are_loaded_at_once() -> None:
    async with Rig(loads_bytes_max=2 * CHUNK_BYTES) as rig:
        rig.store.gate.clear()
        segments = [msgspec.structs.replace(FAR, segment_id=born(NOW_MS, number)) for number in range(6)]
        readers = [asyncio.create_task(rig.ask(SegmentRead(segment, 0, 1))) for segment in segments]
        while len(rig.server._tasks) < 6 or rig.store.running < 2:
            await asyncio.sleep(0)
        rig.store.gate.set()
        await asyncio.gather(*readers)
        assert len(rig.store.gets) == 6
        assert rig.store.running_most == 2


async def test_whoever_replays_old_data_leaves_room_for_the_loads_of_new_data() -> None:
    async with Rig(loads_bytes_max=4 * CHUNK_BYTES) as rig:
        rig.store.gate.clear()
        old = [msgspec.structs.replace(FAR, segment_id=born(NOW_MS, number), level=1) for number in range(6)]
        replaying = [asyncio.create_task(rig.ask(SegmentRead(segment, 0, 1))) for segment in old]
        while len(rig.server._tasks) < 6 or rig.store.running < 2:
            await asyncio.sleep(0)
        tailing = asyncio.create_task(rig.ask(SegmentRead(FAR, 0, 1)))
        while rig.store.running < 3:
            await asyncio.sleep(0)
        assert [position for position, _ in rig.store.gets] == [0, 0, 0]
        rig.store.gate.set()
        assert (await tailing)[0] == [1]
        await asyncio.gather(*replaying)
        assert rig.store.running_most <= 4


async def test_requests_beyond_what_may_wait_are_answered_at_once_with_what_is_here() -> None:
    async with Rig(requests_bytes_max=CHUNK_BYTES) as rig:
        await rig.ask(SegmentRead(FAR, CHUNK_BYTES, 5))
        rig.store.gate.clear()
        waiting = asyncio.create_task(rig.ask(SegmentRead(FAR, 0, 5)))
        while not rig.store.running:
            await asyncio.sleep(0)
        lengths, _ = await rig.ask(SegmentRead(FAR, 0, 5), SegmentRead(FAR, CHUNK_BYTES, 5))
        assert lengths == [-1, 5]
        rig.store.gate.set()
        assert await waiting == ([5], BYTES[:5])


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
        assert rig.metrics.evictions._value.get() >= 1


async def test_a_load_asked_for_after_the_chunk_has_landed_takes_it_from_the_cache() -> None:
    async with Rig() as rig:
        (chunk,) = chunks_of(SegmentRead(FAR, 0, 1))
        assert await rig.reads.load(chunk, FAR) == await rig.reads.load(chunk, FAR)
        assert len(rig.store.gets) == 1


async def test_a_load_asked_for_while_another_lands_leaves_nothing_behind() -> None:
    async with Rig(cache_bytes=0) as rig:
        await rig.writer_answers(from_memory)
        (chunk,) = chunks_of(SegmentRead(FAR, 0, 1))
        rig.store.gate.clear()

        async def ask_at_the_landing() -> None:
            await rig.store.gate.wait()
            await rig.reads.load(chunk, FAR)

        loads = [asyncio.create_task(rig.reads.load(chunk, FAR))]
        await until_loading(rig)
        loads.append(asyncio.create_task(ask_at_the_landing()))
        await asyncio.sleep(0)
        rig.store.gate.set()
        await asyncio.gather(*loads)
        assert len(rig.store.gets) == 1
        await rig.reads.load(chunk, SEGMENT)
        assert len(rig.asked_of_writer) == 1


async def until_loading(rig: Rig) -> None:
    while not rig.store.running:
        await asyncio.sleep(0)
