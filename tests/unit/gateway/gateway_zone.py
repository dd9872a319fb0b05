"""A gateway's reads with cachers whose answers a test controls, and a store that counts."""

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from penstock.contracts import subjects
from penstock.contracts.batches import SegmentRef
from penstock.contracts.codec import decode, encode_with_payload
from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.messages import CacheReply, CacheRequest, SegmentRead
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.bus.bus import Bus, Inbound
from penstock.runtime.bus.local_first import SharedBus
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock.segment.keys import segment_key
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.segments.limits import SegmentLimits
from penstock_gateway.segments.range_planning import REPLY_HEAD_BYTES
from penstock_gateway.segments.segment_reader import SegmentReader
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.unit.gateway.gateway_read_world import CLUSTER, ZONE, FixedDirectory

SIZE = 300_000
REPLY_BYTES_MAX = 200_000
WRITER = "f"


def content(segment: SegmentRef) -> bytes:
    pattern = bytes(segment.segment_id[15:]) * 7 + bytes(range(251))  # the period is not a round number
    return (pattern * (segment.size_bytes // len(pattern) + 1))[: segment.size_bytes]


def segment(number: int, level: int = 0, size_bytes: int = SIZE) -> SegmentRef:
    return SegmentRef(number.to_bytes(16), level, size_bytes, "" if level else WRITER, ZONE)


class Cacher:
    """A cacher whose answers the test controls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[CacheRequest] = []
        self.lacks: Callable[[SegmentRead], bool] = lambda read: False
        self.mangle: Callable[[CacheReply, bytes], bytes] = lambda reply, data: encode_with_payload(reply, [data])
        self.is_silent = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, inbound: Inbound) -> None:
        request = decode(inbound.data, CacheRequest)
        self.requests.append(request)
        if self.is_silent:
            return
        await self.gate.wait()
        found = [None if self.lacks(read) else expected(read) for read in request.reads]
        reply = CacheReply([-1 if data is None else len(data) for data in found])
        await inbound.respond(self.mangle(reply, b"".join(data for data in found if data is not None)))


def expected(read: SegmentRead) -> bytes:
    return content(read.segment)[read.position : read.position + read.length]


class Zone:
    """A gateway's reads, the cachers of its zone, and a store that counts."""

    def __init__(self) -> None:
        self.hub = MemoryHub(message_bytes_max=REPLY_BYTES_MAX + REPLY_HEAD_BYTES)
        self.bus: Bus = self.hub.connect("gateway")
        self.store = CountingStore()
        self.directory = FixedDirectory()
        self.clock = ManualClock(0.0, epoch_ms=0)  # the segments are born at 0
        self.registry = CollectorRegistry()
        self.cachers: dict[str, Cacher] = {}
        self.throttle = CatchUpThrottle(0, self.clock)
        self.reads = self.make()
        self.log_reader = LogReader(
            segments=self.reads, clock=self.clock, response_memory=ResponseMemory(2**30), throttle=self.throttle
        )

    def make(self, limits: SegmentLimits | None = None, traces: Traces = NO_TRACES) -> SegmentReader:
        self.registry = CollectorRegistry()
        return SegmentReader(
            bus=self.bus,
            cluster=CLUSTER,
            zone=ZONE,
            pool=DEFAULT_POOL,
            directory=self.directory,
            store=self.store,
            clock=self.clock,
            registry=self.registry,
            limits=limits,
            traces=traces,
        )

    async def add_cacher(self, name: str) -> Cacher:
        cacher = self.cachers[name] = Cacher(name)
        await self.hub.connect(name).subscribe(subjects.cache(CLUSTER, ZONE, name), cacher.handle)
        self.directory.change(list(self.cachers))
        return cacher

    async def add_own_flusher(self) -> Cacher:
        """The flusher in the process of the gateway; it wrote all segments at level 0. `reads` has another bus then."""
        shared = SharedBus(self.bus)
        self.bus = shared.connect()
        self.reads = self.make()
        flusher = Cacher(WRITER)
        await shared.connect().subscribe(subjects.cache(CLUSTER, ZONE, WRITER), flusher.handle)
        return flusher

    async def put(self, ref: SegmentRef) -> SegmentRef:
        await self.store.put(segment_key("", CLUSTER, ref.level, ref.segment_id), [content(ref)])
        return ref

    def sample(self, name: str, labels: dict[str, str] | None = None) -> float:
        return self.registry.get_sample_value(f"penstock_gateway_{name}_total", labels or {}) or 0


class CountingStore(MemoryStore):
    """A store in memory that records its range reads."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[tuple[str, int, int]] = []
        self.answer: Callable[[bytes], bytes] = lambda data: data

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.gets.append((key, position, length))
        return self.answer(await super().get_range(key, position, length))


async def check(zone: Zone, *reads: SegmentRead) -> None:
    data = await zone.reads.read(reads)
    assert [bytes(each) if isinstance(each, memoryview) else each for each in data] == [
        expected(each) for each in reads
    ]
