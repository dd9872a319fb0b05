"""Answers cache requests: ranges of segments, assembled from chunks."""

import asyncio
from collections import Counter
from collections.abc import Container, Coroutine, Iterable
from typing import Any

import msgspec
import structlog

from penstock.contracts.batches import SegmentRef
from penstock.contracts.codec import Buffer, decode, pack
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.messages import CacheReply, CacheRequest, SegmentRead
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.traces.traces import within
from penstock_cacher.chunks import Chunk, chunks_of, is_readable, slices_of
from penstock_cacher.metrics import CacherMetrics
from penstock_cacher.reads import ChunkReads

log = structlog.get_logger()

HEAD_BYTES_MAX = 64  # of a reply, besides its lengths
LENGTH_BYTES_MAX = 9  # of one length in msgpack
NOT_HERE = -1


class ServeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of concurrent requests."""

    requests_max: int = 1_024  # that wait for loads at the same time; each holds the chunks that it needs


SERVE_LIMITS = ServeLimits()


class CacheServer:
    """Answers requests: at once if all chunks are cached, else in a separate task.

    The answer for a range is -1 if it lies outside its segment, exceeds the reply, or cannot be loaded. It is also -1
    if requests would then wait for too many chunks. The other ranges of the request are served. The gateway reads the
    rest from another source.
    """

    def __init__(
        self,
        *,
        reads: ChunkReads,
        message_bytes_max: int,
        requests_bytes_max: int,
        metrics: CacherMetrics,
        limits: ServeLimits = SERVE_LIMITS,
    ) -> None:
        self._reads = reads
        self._message_bytes_max = message_bytes_max
        self._requests_bytes_max = requests_bytes_max
        self._metrics = metrics
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited: Counter[Chunk] = Counter()
        self.waiting_bytes = 0  # of the chunks that requests hold or wait for, each counted once

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for loads."""
        return len(self._tasks)

    async def handle(self, inbound: Inbound) -> None:
        """Handle one request."""
        try:
            request = decode(inbound.data, CacheRequest)
        except Corrupt as error:
            log.warning("cache_request_malformed", size_bytes=len(inbound.data), error=str(error))
            return
        wanted = self._acceptable(request)
        for read in wanted:
            if read is not None and (request.loads_only or read.ahead > 0):
                self._reads.begin(read)
        if request.loads_only:
            return
        needed = _needed(wanted)
        held = {chunk: data for chunk in needed if (data := self._reads.cached(chunk)) is not None}
        if len(held) < len(needed):
            wanted = self._affordable(wanted, held)
            needed = _needed(wanted)
            held = {chunk: data for chunk, data in held.items() if chunk in needed}
        missing = {chunk: segment for chunk, segment in needed.items() if chunk not in held}
        if not missing:
            await self._answer(inbound, wanted, held)
        else:
            with within(request.trace):  # for the task with the loads
                self._begin(self._load_and_answer(inbound, wanted, held, missing), list(needed))

    async def run(self) -> None:
        """Wait until cancelled; raises an unexpected error of a task."""
        await self._failed

    async def until_idle(self) -> None:
        """Return when every received request is answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await self.until_idle()

    def _acceptable(self, request: CacheRequest) -> list[SegmentRead | None]:
        """The reads in their order, with None for each read that does not fit into this reply or is impossible."""
        left_bytes = self._message_bytes_max - HEAD_BYTES_MAX - LENGTH_BYTES_MAX * len(request.reads)
        reads: list[SegmentRead | None] = []
        for read in request.reads:
            if is_readable(read) and read.length <= left_bytes:
                left_bytes -= read.length
                reads.append(read)
            else:
                self._metrics.rejected_reads.labels("impossible").inc()
                reads.append(None)
        return reads

    def _affordable(self, reads: list[SegmentRead | None], held: Container[Chunk]) -> list[SegmentRead | None]:
        """The reads in their order, with None for each read whose loads would exceed the limits now.

        Reads of cached chunks need no load, but their chunks are held as long as the other reads wait.
        """
        cached = [read is None or all(chunk in held for chunk in chunks_of(read)) for read in reads]
        taken = set(_needed(read for read, is_cached in zip(reads, cached, strict=True) if is_cached))
        taken_bytes = self._bytes_with(taken)
        may_wait = len(self._tasks) < self._limits.requests_max
        accepted: list[SegmentRead | None] = []
        for read, is_cached in zip(reads, cached, strict=True):
            new = [chunk for chunk in _needed([read]) if chunk not in taken]
            new_bytes = self._bytes_with(new) - self.waiting_bytes
            if is_cached:
                accepted.append(read)
            elif may_wait and taken_bytes + new_bytes <= self._requests_bytes_max:
                taken.update(new)
                taken_bytes += new_bytes
                accepted.append(read)
            else:
                self._metrics.rejected_reads.labels("overload").inc()
                accepted.append(None)
        return accepted

    def _bytes_with(self, chunks: Iterable[Chunk]) -> int:
        return self.waiting_bytes + sum(chunk.size_bytes for chunk in chunks if chunk not in self._awaited)

    def _begin(self, work: Coroutine[Any, Any, None], chunks: list[Chunk]) -> None:
        self.waiting_bytes = self._bytes_with(chunks)
        self._awaited.update(chunks)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, chunks))

    def _ended(self, task: asyncio.Task[None], chunks: list[Chunk]) -> None:
        self._tasks.discard(task)
        for chunk in chunks:
            self._awaited[chunk] -= 1
            if not self._awaited[chunk]:
                del self._awaited[chunk]
                self.waiting_bytes -= chunk.size_bytes
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _load_and_answer(
        self,
        inbound: Inbound,
        reads: list[SegmentRead | None],
        held: dict[Chunk, Buffer],
        missing: dict[Chunk, SegmentRef],
    ) -> None:
        loads = (self._load(chunk, segment, held) for chunk, segment in missing.items())
        await asyncio.gather(*loads)
        await self._answer(inbound, reads, held)

    async def _load(self, chunk: Chunk, segment: SegmentRef, held: dict[Chunk, Buffer]) -> None:
        try:
            held[chunk] = await self._reads.load(chunk, segment)
        except PenstockError:
            self._metrics.rejected_reads.labels("not_loaded").inc()

    async def _answer(self, inbound: Inbound, reads: list[SegmentRead | None], held: dict[Chunk, Buffer]) -> None:
        lengths = []
        payload: list[Buffer] = []
        for read in reads:
            if read is None or any(chunk not in held for chunk in chunks_of(read)):
                lengths.append(NOT_HERE)
                continue
            lengths.append(read.length)
            payload += slices_of(read, held.__getitem__)
            self._metrics.served_bytes.inc(read.length)
        await inbound.respond(pack(CacheReply(lengths), payload))


def _needed(reads: Iterable[SegmentRead | None]) -> dict[Chunk, SegmentRef]:
    """The chunks that the reads touch, each with its segment."""
    return {chunk: read.segment for read in reads if read is not None for chunk in chunks_of(read)}
