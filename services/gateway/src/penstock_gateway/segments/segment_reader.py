"""Reads ranges of segments: from the cachers of its zone and pool, and from the store if no cacher has them.

A store with local reads is read at once, and no cacher is asked: the page cache is the cache that all gateways of the
machine share (ADR 0041).
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import is_cold
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.messages import SegmentRead
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.byte_budget import ByteBudget
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock.segment.keys import segment_key
from penstock_gateway.segments.cache_client import CacheClient, Found, run_all
from penstock_gateway.segments.cache_ring import Instances
from penstock_gateway.segments.full_objects import FullObjectReads
from penstock_gateway.segments.limits import SegmentLimits
from penstock_gateway.segments.range_planning import REPLY_HEAD_BYTES, ReadFragment, StoreGet, cut, gets_of

log = structlog.get_logger()

NO_PREFIX = ""  # the store's address includes the prefix
STORE_READ = "store read"  # the name of a span

Data = memoryview | PenstockError


class SegmentReader:
    """Reads many ranges at once, with one request per cacher where possible."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        zone: str,
        pool: str,
        directory: Instances,
        store: ObjectStore,
        clock: Clock,
        registry: CollectorRegistry,
        limits: SegmentLimits | None = None,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._traces = traces
        self._limits = limits = limits or SegmentLimits()
        self._window = ByteBudget(limits.window_bytes)
        self._slots = asyncio.Semaphore(limits.store_reads_max)
        self._cold_slots = asyncio.Semaphore(limits.cold_store_reads_max)
        self._full_reads = FullObjectReads(self._get_full, kept_bytes_max=limits.full_reads_kept_bytes_max)
        self._bytes = Counter(
            "penstock_gateway_read_bytes",
            "Bytes of segments read, by source: `cache`, the cachers of the zone; `store`, because no cacher had them; "
            "`local`, a store with local reads. `cache` includes the flusher in this process.",
            ["source"],
            registry=registry,
        )
        self._gets = Counter(
            "penstock_gateway_store_gets", "Range GETs that the gateway sent to the store.", registry=registry
        )
        self._cachers = CacheClient(
            bus=bus,
            cluster=cluster,
            zone=zone,
            pool=pool,
            directory=directory,
            clock=clock,
            registry=registry,
            window=self._window,
            read_bytes=self._bytes.labels("cache"),
            limits=limits,
            traces=traces,
        )

    async def close(self) -> None:
        """End the background tasks."""
        await self._full_reads.close()

    async def load_ahead(self, reads: Sequence[SegmentRead]) -> None:
        """Have cachers load ranges that are likely to be read soon."""
        if self._store.has_local_reads:
            return
        await self._cachers.load_ahead(reads)

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]:
        """The bytes of each range, or its error: `Unavailable`, `NotFound`, `Corrupt`.

        A view that is not read-only has a buffer of its own, which its caller may change.
        """
        if self._store.has_local_reads:
            return await asyncio.gather(*map(self._read_local, reads))
        fragments = cut(reads, self._bus.message_bytes_max - REPLY_HEAD_BYTES)
        found: Found = {}
        failed: dict[int, PenstockError] = {}
        await self._cachers.fill(fragments, found, self._fill_quietly)
        missing = [number for number in range(len(fragments)) if number not in found]
        await self._fill_from_store(missing, fragments, found, failed)
        return _reassemble(len(reads), fragments, {**failed, **found})

    async def _read_local(self, read: SegmentRead) -> Data:
        key = _key(self._cluster, read.segment)
        buffer = memoryview(bytearray(read.length))
        slots = self._cold_slots if is_cold(read.segment, self._clock.now_ms()) else self._slots
        try:
            async with slots:
                with self._traces.stage(STORE_READ, object=key, bytes=read.length):
                    await self._store.get_range_into(key, read.position, buffer)
        except PenstockError as error:
            _log_failure(key, read.position, read.length, error)
            return error
        self._bytes.labels("local").inc(read.length)
        return buffer

    async def _fill_quietly(self, numbers: Sequence[int], fragments: Sequence[ReadFragment], found: Found) -> None:
        await self._fill_from_store(numbers, fragments, found, {})

    async def _fill_from_store(
        self, numbers: Sequence[int], fragments: Sequence[ReadFragment], found: Found, failed: dict[int, PenstockError]
    ) -> None:
        await run_all([self._from_store(get, fragments, found, failed) for get in gets_of(numbers, fragments)])

    async def _from_store(
        self, get: StoreGet, fragments: Sequence[ReadFragment], found: Found, failed: dict[int, PenstockError]
    ) -> None:
        try:
            data, start = await self._data_of(get)
        except PenstockError as error:
            _log_failure(_key(self._cluster, get.segment), get.position, get.length, error)
            failed.update(dict.fromkeys(get.fragments, error))
            return
        view = memoryview(data).toreadonly()  # several fetches may share a full object
        for number in get.fragments:
            position = fragments[number].read.position - start
            found[number] = view[position : position + fragments[number].read.length]

    async def _data_of(self, get: StoreGet) -> tuple[bytes, int]:
        """Bytes of a segment that include the wanted ones, and the position of the first byte."""
        slots = self._slots
        if is_cold(get.segment, self._clock.now_ms()):
            slots = self._cold_slots
        elif self._is_full_read_cheaper(get.segment):
            return await self._full_reads.get(get.segment), 0
        return await self._get_range(get.segment, get.position, get.length, slots), get.position

    def _is_full_read_cheaper(self, segment: SegmentRef) -> bool:
        """Whether a segment just flushed is read as a full object, so that all readers share one GET."""
        return segment.level == 0 and segment.size_bytes <= self._limits.full_read_bytes_max

    async def _get_full(self, segment: SegmentRef) -> bytes:
        return await self._get_range(segment, 0, segment.size_bytes, self._slots)

    async def _get_range(self, segment: SegmentRef, position: int, length: int, slots: asyncio.Semaphore) -> bytes:
        key = _key(self._cluster, segment)
        self._gets.inc()
        async with slots, self._window.hold(length):
            with self._traces.stage(STORE_READ, object=key, bytes=length):
                data = await self._store.get_range(key, position, length)
        if len(data) != length:
            raise Corrupt(f"{len(data)} bytes of {key} at {position}, expected {length}")
        self._bytes.labels("store").inc(length)
        return data


def _log_failure(key: str, position: int, length: int, error: PenstockError) -> None:
    log.warning("segment_not_read", key=key, position=position, length=length, error=str(error))


def _key(cluster: str, segment: SegmentRef) -> str:
    return segment_key(NO_PREFIX, cluster, segment.level, segment.segment_id)


def _reassemble(count: int, fragments: Sequence[ReadFragment], found: Mapping[int, Data]) -> list[Data]:
    """One buffer per range: several fragments are copied into one, and the first error fails the range."""
    parts: list[list[Data]] = [[] for _ in range(count)]
    for number, fragment in enumerate(fragments):
        parts[fragment.range_index].append(found[number])
    return [_concatenated(part) for part in parts]


def _concatenated(parts: Sequence[Data]) -> Data:
    if len(parts) == 1:
        return parts[0]
    views = []
    for part in parts:
        if isinstance(part, PenstockError):
            return part
        views.append(part)
    return memoryview(b"".join(views))
