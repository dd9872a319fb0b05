"""A cacher on a memory bus for tests, with a flusher that may answer, and a store that counts GETs."""

import asyncio
import random

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import CHUNK_BYTES, SPILL_BYTES_MAX
from penstock.contracts.codec import decode, decode_with_payload, encode, encode_with_payload
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.messages import CacheReply, CacheRequest, Presence, SegmentRead
from penstock.objectstore import NotFound
from penstock.runtime.clock import SystemClock
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock.segment.keys import segment_key
from penstock_cacher.chunk_cache import ChunkCache
from penstock_cacher.metrics import CacherMetrics
from penstock_cacher.reads import ChunkReads
from penstock_cacher.serve import CacheServer
from tests.testkit.fakes.memory_bus import MemoryHub

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
    """A store with one object. It counts its GETs, and can be blocked or made to fail."""

    def __init__(self) -> None:
        self.gets: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False
        self.running = 0
        self.running_max = 0

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.gets.append((position, length))
        self.running += 1
        self.running_max = max(self.running_max, self.running)
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
    """A cacher on a memory bus, with a flusher that may answer."""

    def __init__(
        self,
        *,
        cache_bytes: int = 64 * CHUNK_BYTES,
        loads_bytes_max: int = 8 * CHUNK_BYTES,
        requests_bytes_max: int = 64 * CHUNK_BYTES,
        message_bytes_max: int = 8 * 1024 * 1024,
        traces: Traces = NO_TRACES,
    ) -> None:
        self.hub = MemoryHub(message_bytes_max)
        self.client = self.hub.connect("client")
        self.bus = self.hub.connect("cacher")
        self.flusher = self.hub.connect("flusher")
        self.store = Store()
        self.directory = Directory()
        self.cache = ChunkCache(cache_bytes)
        self.registry = CollectorRegistry()
        self.metrics = CacherMetrics(self.registry)
        self.reads = ChunkReads(
            cluster="c",
            zone="z",
            pool="default",
            bus=self.bus,
            store=self.store,
            directory=self.directory,
            cache=self.cache,
            clock=Clock(),
            metrics=self.metrics,
            loads_bytes_max=loads_bytes_max,
            traces=traces,
        )
        self.server = CacheServer(
            reads=self.reads,
            message_bytes_max=message_bytes_max,
            requests_bytes_max=requests_bytes_max,
            metrics=self.metrics,
        )
        self.writer_requests: list[CacheRequest] = []

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
            self.writer_requests.append(request)
            await inbound.respond(answer(request))

        await self.flusher.subscribe("penstock.c.cache.z.f1", handle)

    async def ask(self, *reads: SegmentRead, trace: str = "") -> tuple[list[int], bytes]:
        request = encode(CacheRequest(list(reads), trace=trace))
        reply, payload = decode_with_payload(
            await self.client.request("penstock.c.cache.z.cacher", request, GRACE_S), CacheReply
        )
        return reply.lengths, bytes(payload)

    def loads(self, source: str) -> float:
        return self.metric("loads_total", source=source)

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the cacher; 0 if it has no value."""
        return self.registry.get_sample_value(f"penstock_cacher_{name}", labels) or 0.0


def from_memory(request: CacheRequest) -> bytes:
    (read,) = request.reads
    return encode_with_payload(CacheReply([read.length]), [BYTES[read.position : read.position + read.length]])


def not_here(request: CacheRequest) -> bytes:
    return encode_with_payload(CacheReply([-1] * len(request.reads)), [])
