"""Reads of chunks from the cache, from the flusher that wrote them, or from the store.

A request for one chunk of a new segment loads all its chunks from the store with one GET. The readers of the segment
will soon need them too. So zones other than the writer's never need more GETs than there were PUTs.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import msgspec
import structlog

from penstock.contracts import subjects
from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import is_cold
from penstock.contracts.codec import Buffer, encode, unpack
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.ids import ulid_text
from penstock.contracts.messages import CacheReply, CacheRequest, Presence, SegmentRead
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.byte_budget import ByteBudget
from penstock.runtime.concurrency.single_flight import SingleFlight
from penstock.runtime.traces.traces import NO_TRACES, Traces, current_trace, record
from penstock.segment.keys import segment_key
from penstock_cacher.chunk_cache import ChunkCache
from penstock_cacher.chunks import Chunk, chunks_ahead, chunks_beside, chunks_of, runs_of
from penstock_cacher.metrics import CacherMetrics

log = structlog.get_logger()

FLUSHER = "flusher"
NO_PREFIX = ""  # the store's URL already has the prefix


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How chunks are loaded."""

    writer_timeout_s: float = 1.0  # a flusher answers from memory; after this time the chunk is read from the store
    # Catch-up reads may use 1/catch_up_share of the bytes in load. So tailing reads never wait for all of them.
    catch_up_share: int = 2


READ_LIMITS = ReadLimits()


class Instances(Protocol):
    """The part of the directory that is needed: the live instances."""

    def get(self, instance: str) -> Presence | None: ...


class ChunkReads:
    """Reads chunks: from the cache if used lately, else by one load for all requests, within a limit of bytes."""

    def __init__(
        self,
        *,
        cluster: str,
        zone: str,
        pool: str,
        bus: Bus,
        store: ObjectStore,
        directory: Instances,
        cache: ChunkCache,
        clock: Clock,
        metrics: CacherMetrics,
        loads_bytes_max: int,
        limits: ReadLimits = READ_LIMITS,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self._cluster = cluster
        self._zone = zone
        self._pool = pool
        self._bus = bus
        self._store = store
        self._directory = directory
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._loading = ByteBudget(loads_bytes_max)
        self._loading_cold = ByteBudget(max(loads_bytes_max // limits.catch_up_share, 1))
        self._starting_bytes = 0  # of loads that `begin` began, and that have not reserved their memory yet
        self._writer_timeout_s = limits.writer_timeout_s
        self._loads: SingleFlight[Chunk, Buffer] = SingleFlight()
        self._runs: SingleFlight[tuple[Chunk, ...], list[Buffer]] = SingleFlight()

    def cached(self, chunk: Chunk) -> Buffer | None:
        """The chunk's bytes if they are cached."""
        found = self._cache.get(chunk)
        self._metrics.chunks.labels("miss" if found is None else "hit").inc()
        return found

    def begin(self, read: SegmentRead) -> None:
        """Start loads of the chunks that a sequential catch-up read needs now and next; one GET for neighbours.

        Nothing is loaded ahead while other loads wait for a memory reservation.
        """
        segment = read.segment
        if not self._is_cold(segment):
            return
        wanted = [*chunks_of(read), *(chunks_ahead(read) if read.ahead > 0 else [])]
        missing = [chunk for chunk in wanted if chunk not in self._loads and chunk not in self._cache]
        for run in runs_of(missing):
            size_bytes = _size_bytes(run)
            if size_bytes > self._loading_cold.free_bytes - self._starting_bytes:
                return
            if tuple(run) not in self._runs:
                self._starting_bytes += size_bytes
                self._runs.begin(tuple(run), partial(self._load_begun_run, run))
            for number, chunk in enumerate(run):
                self._loads.begin(chunk, partial(self._load_of_run, run, number, is_cold=True))

    async def load(self, chunk: Chunk, segment: SegmentRef) -> Buffer:
        """Load the bytes of a chunk that is not cached; `PenstockError` if that fails."""
        return await self._loads.get(chunk, lambda: self._load(chunk, segment))

    async def close(self) -> None:
        """End all loads."""
        await self._loads.close()
        await self._runs.close()

    def _is_cold(self, segment: SegmentRef) -> bool:
        return is_cold(segment, self._clock.now_ms())

    async def _load(self, chunk: Chunk, segment: SegmentRef) -> Buffer:
        cached = self._cache.get(chunk)  # another load may have ended after the caller's check
        if cached is not None:
            return cached
        if self._is_cold(segment):
            return await self._load_of_run([chunk], 0, is_cold=True)
        async with self._reported(chunk), self._loading.hold(chunk.size_bytes):
            data = None if chunk in self._cache else await self._from_writer(chunk, segment)
        cached = self._cache.get(chunk)  # a neighbour's load may have kept it during these waits
        if cached is not None:
            return cached
        if data is None:
            missing = [each for each in chunks_beside(chunk, segment) if each == chunk or each not in self._cache]
            (run,) = (run for run in runs_of(missing) if chunk in run)
            return await self._load_of_run(run, run.index(chunk), is_cold=False)
        self._keep(chunk, data, is_cold=False)
        return data

    async def _load_of_run(self, run: list[Chunk], number: int, *, is_cold: bool) -> Buffer:
        """One chunk of a run that one GET loads."""
        return (await self._runs.get(tuple(run), lambda: self._load_run(run, is_cold=is_cold)))[number]

    async def _load_begun_run(self, run: list[Chunk]) -> list[Buffer]:
        self._starting_bytes -= _size_bytes(run)  # from here on, the reservation counts
        return await self._load_run(run, is_cold=True)

    async def _load_run(self, run: list[Chunk], *, is_cold: bool) -> list[Buffer]:
        async with self._reported(run[0]), self._reserve(_size_bytes(run), is_cold=is_cold):
            data = memoryview(await self._from_store(run))
        parts: list[Buffer] = []
        for chunk in run:
            start = chunk.position - run[0].position
            # With several chunks, each gets its own copy: a view would keep the whole run in memory.
            part = data[start : start + chunk.size_bytes]
            parts.append(part if len(run) == 1 else bytes(part))
            self._keep(chunk, parts[-1], is_cold=is_cold)
        return parts

    @asynccontextmanager
    async def _reserve(self, size_bytes: int, *, is_cold: bool) -> AsyncIterator[None]:
        """Reserve memory to load so many bytes; a catch-up read first needs a part of the limit for catch-up reads."""
        if not is_cold:
            async with self._loading.hold(size_bytes):
                yield
            return
        async with self._loading_cold.hold(size_bytes), self._loading.hold(size_bytes):
            yield

    def _keep(self, chunk: Chunk, data: Buffer, *, is_cold: bool) -> None:
        self._metrics.evictions.inc(self._cache.put(chunk, data, is_cold=is_cold))
        self._metrics.held_bytes.set(self._cache.held_bytes)

    @asynccontextmanager
    async def _reported(self, chunk: Chunk) -> AsyncIterator[None]:
        try:
            yield
        except PenstockError as error:
            self._metrics.load_failures.inc()
            log.warning("chunk_not_loaded", segment=ulid_text(chunk.segment_id), chunk=chunk.index, error=str(error))
            raise

    async def _from_writer(self, chunk: Chunk, segment: SegmentRef) -> Buffer | None:
        """The chunk from the memory of its writer, if that is of this zone and pool, and still has it."""
        if segment.zone != self._zone:
            return None
        writer = self._directory.get(segment.writer)
        if writer is None or writer.role != FLUSHER or writer.pool != self._pool:
            return None
        started_s = self._clock.monotonic_s()
        request = encode(CacheRequest([SegmentRead(segment, chunk.position, chunk.size_bytes)]))
        subject = subjects.cache(self._cluster, self._zone, segment.writer)
        try:
            answer = await self._bus.request_buffers(subject, request, self._writer_timeout_s)
            reply, payload = unpack(answer, CacheReply)
        except (Unavailable, Corrupt) as error:
            log.warning("chunk_not_from_writer", writer=segment.writer, error=str(error))
            return None
        if reply.lengths != [chunk.size_bytes] or sum(map(len, payload)) != chunk.size_bytes:
            return None
        self._count("writer", chunk, chunk.size_bytes, started_s)
        # One buffer, also if the answer has one for each batch: the cache counts the memory that a chunk uses.
        return payload[0] if len(payload) == 1 and len(answer) == 1 else b"".join(payload)

    async def _from_store(self, run: list[Chunk]) -> Buffer:
        started_s = self._clock.monotonic_s()
        first, size_bytes = run[0], _size_bytes(run)
        key = segment_key(NO_PREFIX, self._cluster, first.level, first.segment_id)
        data = await self._store.get_range(key, first.position, size_bytes)
        if len(data) != size_bytes:
            raise Corrupt(f"{len(data)} bytes of {key} at {first.position}, expected {size_bytes}")
        self._count("store", first, size_bytes, started_s)
        return data

    def _count(self, source: str, first: Chunk, size_bytes: int, started_s: float) -> None:
        now_s = self._clock.monotonic_s()
        self._metrics.loads.labels(source).inc()
        self._metrics.load_bytes.labels(source).inc(size_bytes)
        self._metrics.load_seconds.labels(source).observe(now_s - started_s)
        if trace := current_trace():
            segment = ulid_text(first.segment_id)
            record(
                self._traces, "chunk load", started_s, now_s, trace, source=source, segment=segment, bytes=size_bytes
            )


def _size_bytes(run: Iterable[Chunk]) -> int:
    return sum(chunk.size_bytes for chunk in run)
