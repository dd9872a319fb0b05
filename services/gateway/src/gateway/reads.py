"""Ranges of segments for readers: from the zone's cachers, and from the store itself when they cannot help."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter

from gateway.byte_budget import ByteBudget
from gateway.cacher_ring import CacherRing, Instances, part_of
from gateway.position_hints import PositionHints
from gateway.read_pieces import REPLY_HEAD_BYTES, ReadPiece, StoreGet, cut, gets_of, requests_of
from gateway.run_maps import RunMaps
from penstock.contracts import subjects
from penstock.contracts.codec import decode_with_payload, encode
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable, Undelivered
from penstock.contracts.messages import CacheReply, CacheRequest, SegmentRead
from penstock.objectstore import ObjectStore
from penstock.runtime.bus import Bus
from penstock.runtime.clock import Clock
from penstock.segment.keys import segment_key

log = structlog.get_logger()

OWNERS_ASKED_MAX = 2  # the owner and the next in the ring; then the store, which always knows
CACHER_TIMEOUT_S = 2.0  # a cacher may have to load from the store first
GONE_AVOIDED_S = 1.0  # nobody listened there: the directory will notice within three seconds
SILENT_AVOIDED_S = 5.0  # somebody listens and does not answer: each further try would cost a time-out
# Answers on their way to this gateway. The bus cuts off a client that leaves 64 MB unread.
WINDOW_BYTES = 32 * 1024 * 1024
STORE_READS_MAX = 16  # at once
COLD_STORE_READS_MAX = 8  # at once, of compacted segments: whoever reads old data waits for others who do
FETCHED_BYTES_MAX = 128 * 1024 * 1024  # held by all fetches from before they read until they are put together
NO_PREFIX = ""  # the store's address has a prefix of its own

Data = memoryview | PenstockError


class SegmentReads:
    """Reads many ranges at once, with one question per cacher where possible.

    `budget` is for those who read: they hold as many bytes of it as they are going to have in memory.
    """

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
        window_bytes: int = WINDOW_BYTES,
        fetched_bytes_max: int = FETCHED_BYTES_MAX,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._zone = zone
        self._store = store
        self._ring = CacherRing(directory, zone, clock)
        self._window = ByteBudget(window_bytes)
        self._hot_slots = asyncio.Semaphore(STORE_READS_MAX)
        self._cold_slots = asyncio.Semaphore(COLD_STORE_READS_MAX)
        self.budget = ByteBudget(fetched_bytes_max)
        self.hints = PositionHints()
        self.maps = RunMaps(self.read)
        self._bytes = Counter(
            "penstock_gateway_read_bytes", "Segment bytes read, by where they came from.", ["source"], registry=registry
        )
        self._gets = Counter("penstock_gateway_store_gets", "Range GETs sent to the store.", registry=registry)
        self._failures = Counter(
            "penstock_gateway_cacher_failures", "Cachers' failures to answer.", ["cause"], registry=registry
        )

    async def close(self) -> None:
        """End what was begun for nobody in particular."""
        await self.maps.close()

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]:
        """The bytes of each range, or why they cannot be had: `Unavailable`, `NotFound`, `Corrupt`."""
        reply_bytes_max = self._bus.message_bytes_max - REPLY_HEAD_BYTES
        pieces = cut(reads, reply_bytes_max)
        found: dict[int, Data] = {}
        for numbers_by_owner in self._rounds(pieces, found):
            requests = [
                self._from_cacher(owner, group, pieces, found)
                for owner, numbers in numbers_by_owner.items()
                for group in requests_of(numbers, pieces, reply_bytes_max)
            ]
            await _all(requests)
        missing = [number for number in range(len(pieces)) if number not in found]
        if missing:
            await _all([self._from_store(get, pieces, found) for get in gets_of(missing, pieces)])
        return _join(len(reads), pieces, found)

    def _rounds(self, pieces: Sequence[ReadPiece], found: dict[int, Data]) -> Iterable[dict[str, list[int]]]:
        """Whom to ask for what is still missing, first the owners, then the next in the ring."""
        owners: dict[str, list[str]] = {}
        for attempt in range(OWNERS_ASKED_MAX):
            numbers_by_owner: dict[str, list[int]] = {}
            for number, piece in enumerate(pieces):
                if number in found:
                    continue
                part = part_of(piece.read.segment, piece.read.position)
                if part not in owners:
                    owners[part] = self._ring.owners(part, OWNERS_ASKED_MAX)
                if attempt < len(owners[part]):
                    numbers_by_owner.setdefault(owners[part][attempt], []).append(number)
            if not numbers_by_owner:
                return
            yield numbers_by_owner

    async def _from_cacher(
        self, owner: str, numbers: Sequence[int], pieces: Sequence[ReadPiece], found: dict[int, Data]
    ) -> None:
        reads = [pieces[number].read for number in numbers]
        try:
            async with self._window.hold(sum(read.length for read in reads)):
                answer = await self._bus.request(
                    subjects.cache(self._cluster, self._zone, owner), encode(CacheRequest(reads)), CACHER_TIMEOUT_S
                )
            views = _split(answer, reads)
        except (Unavailable, Corrupt) as error:
            self._note_failure(owner, error)
            return
        for number, view in zip(numbers, views, strict=True):
            if view is not None:
                found[number] = view
                self._bytes.labels("cache").inc(len(view))

    def _note_failure(self, owner: str, error: PenstockError) -> None:
        cause = "gone" if isinstance(error, Undelivered) else "silent" if isinstance(error, Unavailable) else "corrupt"
        self._failures.labels(cause).inc()
        self._ring.avoid(owner, GONE_AVOIDED_S if cause == "gone" else SILENT_AVOIDED_S)
        log.warning("cacher_failed", instance=owner, cause=cause, error=str(error))

    async def _from_store(self, get: StoreGet, pieces: Sequence[ReadPiece], found: dict[int, Data]) -> None:
        key = segment_key(NO_PREFIX, self._cluster, get.segment.level, get.segment.segment_id)
        slots = self._cold_slots if get.segment.level > 0 else self._hot_slots
        self._gets.inc()
        try:
            async with slots, self._window.hold(get.length):
                data = await self._store.get_range(key, get.position, get.length)
            if len(data) != get.length:
                raise Corrupt(f"{len(data)} bytes of {key} at {get.position}, expected {get.length}")
        except PenstockError as error:
            log.warning("segment_not_read", key=key, position=get.position, length=get.length, error=str(error))
            found.update(dict.fromkeys(get.pieces, error))
            return
        view = memoryview(data)
        self._bytes.labels("store").inc(get.length)
        for number in get.pieces:
            start = pieces[number].read.position - get.position
            found[number] = view[start : start + pieces[number].read.length]


async def _all(requests: Sequence[Coroutine[None, None, None]]) -> None:
    """Run them side by side; without a task where there is just one."""
    if len(requests) == 1:
        await requests[0]
        return
    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(request)


def _split(answer: bytes, reads: Sequence[SegmentRead]) -> list[memoryview | None]:
    """A cacher's answer as one view per range, None for those that it does not have; `Corrupt` if it does not fit."""
    reply, payload = decode_with_payload(answer, CacheReply)
    views: list[memoryview | None] = []
    position = 0
    if len(reply.lengths) != len(reads):
        raise Corrupt(f"{len(reply.lengths)} answers to {len(reads)} reads")
    for read, length in zip(reads, reply.lengths, strict=True):
        if length not in (-1, read.length):
            raise Corrupt(f"a range of {length} bytes, expected {read.length}")
        views.append(None if length < 0 else payload[position : position + length])
        position += max(length, 0)
    if position != len(payload):
        raise Corrupt(f"a payload of {len(payload)} bytes, expected {position}")
    return views


def _join(count: int, pieces: Sequence[ReadPiece], found: dict[int, Data]) -> list[Data]:
    """One buffer per range; a range in several pieces is copied together, one with a failed piece fails."""
    parts: list[list[Data]] = [[] for _ in range(count)]
    for number, piece in enumerate(pieces):
        parts[piece.range_index].append(found[number])
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
