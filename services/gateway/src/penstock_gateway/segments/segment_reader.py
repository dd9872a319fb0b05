"""Ranges of segments for readers: from the zone's cachers, and from the store itself when they cannot help."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog
from prometheus_client import CollectorRegistry, Counter

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.chunks import is_history
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.messages import SegmentRead
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.byte_budget import ByteBudget
from penstock.runtime.clock import Clock
from penstock.segment.keys import segment_key
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.offset_index import OffsetIndexes
from penstock_gateway.fetch.position_cache import PositionCache
from penstock_gateway.fetch.prefetch import Prefetcher
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.segments.cache_client import CacheClient, Found, run_all
from penstock_gateway.segments.cache_ring import Instances
from penstock_gateway.segments.full_objects import FullObjectReads, is_full_read_cheaper
from penstock_gateway.segments.range_planning import REPLY_HEAD_BYTES, ReadFragment, StoreGet, cut, gets_of
from penstock_gateway.tail.control_batches import MarkerExtent

log = structlog.get_logger()

# Answers on their way to this gateway. The bus cuts off a client that leaves 64 MB unread.
WINDOW_BYTES = 32 * 1024 * 1024
STORE_READS_MAX = 16  # at once
HISTORY_STORE_READS_MAX = 8  # at once, of old data: whoever reads that waits for others who do
FETCHED_BYTES_MAX = 128 * 1024 * 1024  # held by all fetches from before they read until they are put together
# One part in so many may be held by those who replay: 8 MiB. It lies in all queues before what those who follow the end
# wait for, which costs the first of them some 30 ms; from then on the pace has a say.
HISTORY_SHARE = 16
ROOM_WAIT_S = 1.0  # for other clients to take their answers; then there is an answer without records
NO_PREFIX = ""  # the store's address has a prefix of its own

Data = memoryview | PenstockError


class SegmentReader:
    """Reads many ranges at once, with one question per cacher where possible."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        zone: str,
        directory: Instances,
        store: ObjectStore,
        clock: Clock,
        registry: CollectorRegistry,
        unsent: ResponseMemory,
        pace: CatchUpThrottle,
        window_bytes: int = WINDOW_BYTES,
        fetched_bytes_max: int = FETCHED_BYTES_MAX,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._store = store
        self._window = ByteBudget(window_bytes)
        self._clock = clock
        self._unsent = unsent
        self.pace = pace
        self._history_turn = asyncio.Lock()
        self._slots = asyncio.Semaphore(STORE_READS_MAX)
        self._history_slots = asyncio.Semaphore(HISTORY_STORE_READS_MAX)
        self.budget = ByteBudget(fetched_bytes_max)
        self.history_budget = ByteBudget(fetched_bytes_max // HISTORY_SHARE)
        self.hints = PositionCache()
        self.ahead = Prefetcher()
        self.maps = OffsetIndexes(self.read)
        self._whole = FullObjectReads(self._get_whole)
        self._bytes = Counter(
            "penstock_gateway_read_bytes",
            "Bytes of segments read, by source: `cache`, the cachers of the zone; `store`, because no cacher had them.",
            ["source"],
            registry=registry,
        )
        self._gets = Counter(
            "penstock_gateway_store_gets", "Range GETs that the gateway sent to the store.", registry=registry
        )
        self.cachers = CacheClient(
            bus=bus,
            cluster=cluster,
            zone=zone,
            directory=directory,
            clock=clock,
            registry=registry,
            window=self._window,
            read_bytes=self._bytes.labels("cache"),
        )

    async def close(self) -> None:
        """End what was begun for nobody in particular."""
        await self.maps.close()
        await self._whole.close()

    def is_history(self, extent: Extent) -> bool:
        """Whether an extent is read by those only who replay."""
        return not isinstance(extent, MarkerExtent) and is_history(extent.segment, self._clock.now_ms())

    @asynccontextmanager
    async def room(self, size_bytes: int, *, is_history: bool) -> AsyncIterator[bool]:
        """For those who read: as many bytes as they are going to have in memory; false: read nothing now.

        It is looked at here whether clients take their answers, as many may have waited in line for this. Who reads
        history waits for others who do first, and so never stands in line before who does not; and if news came
        meanwhile to somebody who follows the end, that goes by the pace, which he comes back to.
        """
        if not is_history:
            async with self.budget.hold(size_bytes):
                yield self._unsent.has_room(is_history=False)
            return
        was_held = self.pace.is_held
        await self._unsent.until_room(ROOM_WAIT_S, is_history=True)
        async with self.history_budget.hold(size_bytes), self.budget.hold(size_bytes):
            was_overtaken = self.pace.is_held and not was_held
            yield self._unsent.has_room(is_history=True) and not was_overtaken

    @asynccontextmanager
    async def turn(self, *, is_history: bool) -> AsyncIterator[None]:
        """For putting an answer together: one answer of history at a time, and then whatever else has become due."""
        if not is_history:
            yield
            return
        async with self._history_turn:
            yield
            await asyncio.sleep(0)

    async def load_ahead(self, reads: Sequence[SegmentRead]) -> None:
        """Have cachers load what is going to be wanted."""
        await self.cachers.load_ahead(self.ahead.untold(reads, self._clock.monotonic_s()))

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]:
        """The bytes of each range, or why they cannot be had: `Unavailable`, `NotFound`, `Corrupt`."""
        fragments = cut(reads, self._bus.message_bytes_max - REPLY_HEAD_BYTES)
        found: Found = {}
        failed: dict[int, PenstockError] = {}
        await self.cachers.fill(fragments, found, self._fill_quietly)
        missing = [number for number in range(len(fragments)) if number not in found]
        await self._fill_from_store(missing, fragments, found, failed)
        return _join(len(reads), fragments, {**failed, **found})

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
            key = _key(self._cluster, get.segment)
            log.warning("segment_not_read", key=key, position=get.position, length=get.length, error=str(error))
            failed.update(dict.fromkeys(get.fragments, error))
            return
        view = memoryview(data)
        for number in get.fragments:
            position = fragments[number].read.position - start
            found[number] = view[position : position + fragments[number].read.length]

    async def _data_of(self, get: StoreGet) -> tuple[bytes, int]:
        """Bytes of a segment with those wanted among them, and the position of the first."""
        is_old = is_history(get.segment, self._clock.now_ms())
        if not is_old and is_full_read_cheaper(get.segment):
            return await self._whole.get(get.segment), 0
        slots = self._history_slots if is_old else self._slots
        return await self._get_range(get.segment, get.position, get.length, slots), get.position

    async def _get_whole(self, segment: SegmentRef) -> bytes:
        return await self._get_range(segment, 0, segment.size_bytes, self._slots)

    async def _get_range(self, segment: SegmentRef, position: int, length: int, slots: asyncio.Semaphore) -> bytes:
        key = _key(self._cluster, segment)
        self._gets.inc()
        async with slots, self._window.hold(length):
            data = await self._store.get_range(key, position, length)
        if len(data) != length:
            raise Corrupt(f"{len(data)} bytes of {key} at {position}, expected {length}")
        self._bytes.labels("store").inc(length)
        return data


def _key(cluster: str, segment: SegmentRef) -> str:
    return segment_key(NO_PREFIX, cluster, segment.level, segment.segment_id)


def _join(count: int, fragments: Sequence[ReadFragment], found: Mapping[int, Data]) -> list[Data]:
    """One buffer per range; a range in several pieces is copied together, one with a failed piece fails."""
    parts: list[list[Data]] = [[] for _ in range(count)]
    for number, fragment in enumerate(fragments):
        parts[fragment.range_index].append(found[number])
    return [_joined(part) for part in parts]


def _joined(parts: Sequence[Data]) -> Data:
    if len(parts) == 1:
        return parts[0]
    views = []
    for part in parts:
        if isinstance(part, PenstockError):
            return part
        views.append(part)
    return memoryview(b"".join(views))
