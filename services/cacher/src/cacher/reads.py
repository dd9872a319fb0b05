"""Where a chunk comes from: the cache, the flusher that wrote it, or the store."""

import asyncio
from typing import Protocol

import structlog

from cacher.chunk_cache import ChunkCache, is_cold
from cacher.chunks import Chunk
from cacher.metrics import CacherMetrics
from penstock.contracts import subjects
from penstock.contracts.batches import SegmentRef
from penstock.contracts.codec import Buffer, decode_with_payload, encode
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.ids import ulid_text
from penstock.contracts.messages import CacheReply, CacheRequest, Presence, SegmentRead
from penstock.objectstore import ObjectStore
from penstock.runtime.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.single_flight import SingleFlight
from penstock.segment.keys import segment_key

log = structlog.get_logger()

WRITER_TIMEOUT_S = 1.0  # then the store is asked: a flusher answers from memory, or is in trouble
COLD_LOADS_SHARE = 2  # one in so many loads may be of old data; so those of new data never wait for all of them
FLUSHER = "flusher"
NO_PREFIX = ""  # the store's address has a prefix of its own


class Instances(Protocol):
    """The part of the directory that is needed: who lives."""

    def get(self, instance: str) -> Presence | None: ...


class ChunkReads:
    """Chunks by need: cached if they were used lately, loaded once however many ask, a bounded number at a time."""

    def __init__(
        self,
        *,
        cluster: str,
        zone: str,
        bus: Bus,
        store: ObjectStore,
        directory: Instances,
        cache: ChunkCache,
        clock: Clock,
        metrics: CacherMetrics,
        loads_max: int,
    ) -> None:
        self._cluster = cluster
        self._zone = zone
        self._bus = bus
        self._store = store
        self._directory = directory
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._slots = asyncio.Semaphore(loads_max)
        self._cold_slots = asyncio.Semaphore(max(loads_max // COLD_LOADS_SHARE, 1))
        self._loads: SingleFlight[Chunk, Buffer] = SingleFlight()

    def cached(self, chunk: Chunk) -> Buffer | None:
        """The chunk's bytes if they are here."""
        found = self._cache.get(chunk)
        self._metrics.chunks.labels("miss" if found is None else "hit").inc()
        return found

    async def load(self, chunk: Chunk, segment: SegmentRef) -> Buffer:
        """The bytes of a chunk that is not here; `PenstockError` if nobody has them."""
        return await self._loads.get(chunk, lambda: self._load(chunk, segment))

    async def close(self) -> None:
        """End all loads."""
        await self._loads.close()

    async def _load(self, chunk: Chunk, segment: SegmentRef) -> Buffer:
        landed = self._cache.get(chunk)  # by a load that ended after the caller had looked
        if landed is not None:
            return landed
        try:
            if is_cold(chunk):
                async with self._cold_slots, self._slots:
                    data = await self._from_store(chunk)
            else:
                async with self._slots:
                    data = await self._from_writer(chunk, segment) or await self._from_store(chunk)
        except PenstockError as error:
            self._metrics.load_failures.inc()
            log.warning("chunk_not_loaded", segment=ulid_text(chunk.segment_id), chunk=chunk.index, error=str(error))
            raise
        self._metrics.evictions.inc(self._cache.put(chunk, data))
        self._metrics.held_bytes.set(self._cache.held_bytes)
        return data

    async def _from_writer(self, chunk: Chunk, segment: SegmentRef) -> Buffer | None:
        """From the memory of the flusher that wrote it, if that is near and still has it."""
        if segment.zone != self._zone:
            return None
        writer = self._directory.get(segment.writer)
        if writer is None or writer.role != FLUSHER:
            return None
        started_s = self._clock.monotonic_s()
        request = encode(CacheRequest([SegmentRead(segment, chunk.position, chunk.size_bytes)]))
        subject = subjects.cache(self._cluster, self._zone, segment.writer)
        try:
            reply, payload = decode_with_payload(
                await self._bus.request(subject, request, WRITER_TIMEOUT_S), CacheReply
            )
        except (Unavailable, Corrupt) as error:
            log.warning("chunk_not_from_writer", writer=segment.writer, error=str(error))
            return None
        if reply.lengths != [chunk.size_bytes] or len(payload) != chunk.size_bytes:
            return None
        self._count("writer", chunk, started_s)
        return payload

    async def _from_store(self, chunk: Chunk) -> Buffer:
        started_s = self._clock.monotonic_s()
        key = segment_key(NO_PREFIX, self._cluster, chunk.level, chunk.segment_id)
        data = await self._store.get_range(key, chunk.position, chunk.size_bytes)
        if len(data) != chunk.size_bytes:
            raise Corrupt(f"{len(data)} bytes of {key} at {chunk.position}, expected {chunk.size_bytes}")
        self._count("store", chunk, started_s)
        return data

    def _count(self, source: str, chunk: Chunk, started_s: float) -> None:
        self._metrics.loads.labels(source).inc()
        self._metrics.load_bytes.labels(source).inc(chunk.size_bytes)
        self._metrics.load_seconds.labels(source).observe(self._clock.monotonic_s() - started_s)
