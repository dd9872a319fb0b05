"""Reads whole batches of partitions, with positions, offset indexes, prefetch and the throttle in one object.

Fetch, ShareFetch and ListOffsets read through it. Below it, the segment reader takes ranges and returns bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from penstock.contracts.batches import Extent
from penstock.contracts.chunks import is_cold
from penstock.contracts.errors import PenstockError
from penstock.contracts.messages import SegmentRead
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.byte_budget import ByteBudget
from penstock_gateway.fetch.batch_assembly import (
    Assembled,
    Cursor,
    Fragment,
    assemble,
    fragments_from,
    read_of,
    start_of,
)
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.limits import ReadLimits
from penstock_gateway.fetch.offset_index import OffsetIndexes
from penstock_gateway.fetch.partition_read import PartitionRead
from penstock_gateway.fetch.position_cache import PositionCache
from penstock_gateway.fetch.prefetch import Prefetcher, parts_ahead
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.segments.segment_reader import Data
from penstock_gateway.tail.control_batches import MarkerExtent
from penstock_gateway.tail.tail_index import PartitionKey


class Segments(Protocol):
    """The part of the segment reader that the log reader needs."""

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]: ...

    async def load_ahead(self, reads: Sequence[SegmentRead]) -> None: ...


class LogReader:
    """Reads many partitions side by side, and continues where the bytes read end inside a batch."""

    def __init__(
        self,
        *,
        segments: Segments,
        clock: Clock,
        response_memory: ResponseMemory,
        throttle: CatchUpThrottle,
        limits: ReadLimits | None = None,
    ) -> None:
        self.limits = limits or ReadLimits()
        self.throttle = throttle
        self._segments = segments
        self._clock = clock
        self._response_memory = response_memory
        self._assembling_catch_up = asyncio.Lock()
        self._memory = ByteBudget(self.limits.fetched_bytes_max)
        self._catch_up_memory = ByteBudget(self.limits.fetched_bytes_max // self.limits.catch_up_fraction)
        self._positions = PositionCache(self.limits.positions_max)
        self._prefetcher = Prefetcher()
        self.indexes = OffsetIndexes(
            segments.read,
            bytes_max=self.limits.indexes_bytes_max,
            indexed_bytes_min=self.limits.indexed_bytes_min,
        )

    async def close(self) -> None:
        """End the background tasks."""
        await self.indexes.close()

    @property
    def held_bytes(self) -> int:
        """Bytes reserved by reads that are not done yet."""
        return self._memory.used_bytes

    @property
    def catch_up_held_bytes(self) -> int:
        """The part of `held_bytes` that catch-up reads have reserved."""
        return self._catch_up_memory.used_bytes

    def is_catch_up(self, extent: Extent) -> bool:
        """Whether only catch-up readers read the extent: it is old, or compacted."""
        return not isinstance(extent, MarkerExtent) and is_cold(extent.segment, self._clock.now_ms())

    def known_place(self, key: PartitionKey, offset: int, first: Extent) -> Cursor | None:
        """The cursor at which the search for an offset begins, without a read; None if `place` must find it."""
        position = self._positions.place(key, offset, first)
        if position is None and (offset <= first.base_offset or not self.indexes.has(first)):
            return start_of(first)
        return position

    async def place(self, key: PartitionKey, offset: int, first: Extent) -> Cursor:
        """The cursor at which the search for an offset begins; `PenstockError` if the index cannot be read."""
        return self.known_place(key, offset, first) or await self.indexes.place(first, offset)

    def planned_ahead_bytes(self, key: PartitionKey, offset: int) -> int:
        """How many bytes a plan should list beyond the answer, for a reader that starts at an offset."""
        return self._prefetcher.plan_bytes_for(key, offset)

    async def read(self, reads: Sequence[PartitionRead]) -> None:
        """Fill in the records of each partition, or its error."""
        catch_up = [each for each in reads if self.is_catch_up(each.cursor.extent)]
        for each in catch_up:
            each.ahead_bytes = self._prefetcher.bytes_for(each.key, each.offset)
        size_bytes = sum(each.read_bytes for each in reads)
        async with self.reserve(size_bytes, is_catch_up=bool(catch_up)) as may_read:
            if may_read:
                await self._read_all(reads, is_catch_up=bool(catch_up))
        await self._prefetch([each for each in catch_up if each.records])

    async def read_ranges(self, reads: Sequence[SegmentRead]) -> list[Data]:
        """The bytes of each range, or its error; the caller has reserved the memory."""
        return await self._segments.read(reads)

    @asynccontextmanager
    async def reserve(self, size_bytes: int, *, is_catch_up: bool) -> AsyncIterator[bool]:
        """Reserve memory for a read; false: read nothing now.

        Clients must take their answers before more is read. That is checked here, because many reads may have waited
        for memory. A catch-up read first waits for other catch-up reads, so it never delays a tailing read. If a client
        began to tail during that wait, the read is given up: the next one goes through the throttle.
        """
        if not is_catch_up:
            async with self._memory.hold(size_bytes):
                yield self._response_memory.has_room(is_catch_up=False)
            return
        was_throttled = self.throttle.is_active
        await self._response_memory.wait(self.limits.memory_wait_s, is_catch_up=True)
        async with self._catch_up_memory.hold(size_bytes), self._memory.hold(size_bytes):
            was_overtaken = self.throttle.is_active and not was_throttled
            yield self._response_memory.has_room(is_catch_up=True) and not was_overtaken

    @asynccontextmanager
    async def assembling(self, *, is_catch_up: bool) -> AsyncIterator[None]:
        """Assemble one answer of catch-up data at a time; after it, all other tasks that are ready run first."""
        if not is_catch_up:
            yield
            return
        async with self._assembling_catch_up:
            yield
            await asyncio.sleep(0)

    async def _prefetch(self, reads: Sequence[PartitionRead]) -> None:
        """Have cachers load the ranges that sequential readers will ask for."""
        parts = []
        for each in reads:
            self._prefetcher.record(each.key, each.ahead_bytes, each.next_offset, each.extents)
            if each.ahead_bytes:
                parts += parts_ahead(each.cursor, each.extents, each.next_offset, each.ahead_bytes)
        if parts:
            await self._segments.load_ahead(self._prefetcher.take_new(parts, self._clock.monotonic_s()))

    async def _read_all(self, reads: Sequence[PartitionRead], *, is_catch_up: bool) -> None:
        pending = list(reads)
        for _ in range(self.limits.rounds_max):
            if not pending:
                return
            fragments = [fragments_from(each.cursor, each.extents, each.read_bytes) for each in pending]
            stored = [
                read_of(fragment, each.ahead_bytes)
                for each, its_fragments in zip(pending, fragments, strict=True)
                for fragment in its_fragments
                if not isinstance(fragment.cursor.extent, MarkerExtent)
            ]
            data = iter(await self._segments.read(stored) if stored else ())
            async with self.assembling(is_catch_up=is_catch_up):
                pending = self._take_all(pending, fragments, data)

    def _take_all(
        self, reads: Sequence[PartitionRead], fragments: Sequence[Sequence[Fragment]], data: Iterator[Data]
    ) -> list[PartitionRead]:
        """Take this round's data for each partition; return the reads that need another round."""
        return [
            each
            for each, its_fragments in zip(reads, fragments, strict=True)
            if not self._take(each, [(fragment, _data_of(fragment, data)) for fragment in its_fragments])
        ]

    def _take(self, read: PartitionRead, fragments: list[tuple[Fragment, Data]]) -> bool:
        """Take this round's data; return whether the partition is done."""
        try:
            assembled = self._assemble(read, fragments)
        except PenstockError as error:
            read.error = error
            return True
        read.records, read.next_offset = assembled.records, assembled.next_offset
        if assembled.cursor is not None:
            self._positions.record(read.key, assembled.next_offset, assembled.cursor)
            read.cursor = assembled.cursor
        read.read_bytes = assembled.unread_bytes
        return not assembled.unread_bytes

    def _assemble(self, read: PartitionRead, fragments: list[tuple[Fragment, Data]]) -> Assembled:
        return assemble(
            read.offset,
            read.end_offset,
            fragments,
            bytes_max=read.bytes_max,
            whole_first=read.whole_first,
            leader_epoch=read.leader_epoch,
            scan_bytes=self.limits.scan_bytes,
        )


class HasLogReader(Protocol):
    @property
    def log_reader(self) -> LogReader: ...


def _data_of(fragment: Fragment, stored: Iterator[Data]) -> Data:
    """A marker's own batch, or the next data that was read."""
    extent = fragment.cursor.extent
    return memoryview(extent.data) if isinstance(extent, MarkerExtent) else next(stored)
