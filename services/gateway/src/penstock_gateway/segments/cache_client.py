"""Reads ranges of segments from the zone's cachers: from each part's owner, or from others if it is slow or gone."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Counter

from penstock.contracts import subjects
from penstock.contracts.batches import SegmentRef
from penstock.contracts.codec import Buffer, encode, split, unpack
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable, Undelivered
from penstock.contracts.ids import SegmentId
from penstock.contracts.messages import CacheReply, CacheRequest, SegmentRead
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.byte_budget import ByteBudget
from penstock.runtime.concurrency.single_flight import SingleFlight
from penstock.runtime.traces.traces import NO_TRACES, Traces, current_trace
from penstock_gateway.segments.cache_ring import CacheRing, Instances, part_of
from penstock_gateway.segments.hedging import HedgingPolicy
from penstock_gateway.segments.limits import SegmentLimits
from penstock_gateway.segments.range_planning import REPLY_HEAD_BYTES, ReadFragment, gets_of, requests_of

log = structlog.get_logger()

Found = dict[int, memoryview]
# Adds the fragments with these numbers from a source that has all of them; a failed read adds nothing.
Fill = Callable[[Sequence[int], Sequence[ReadFragment], Found], Coroutine[None, None, None]]


@dataclass(slots=True)
class _Search:
    """Fragments by their numbers, the cachers to ask for each, and the data found so far."""

    fragments: Sequence[ReadFragment]
    owners: Sequence[Sequence[str]]
    found: Found
    fill_otherwise: Fill


class _Answer(NamedTuple):
    """When an answer came, how long it took, and its size."""

    at_s: float
    taken_s: float
    size_bytes: int


class CacheClient:
    """Asks for many fragments at once, with one request per cacher where possible.

    An owner may take much longer than cachers usually do. Then the client also asks the next in the ring, or else the
    store, and the first answer counts. An owner that often loses this race is avoided for a while.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        zone: str,
        pool: str,
        directory: Instances,
        clock: Clock,
        registry: CollectorRegistry,
        window: ByteBudget,
        read_bytes: Counter,
        limits: SegmentLimits,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._bus = bus
        self._traces = traces
        self._limits = limits
        self._cluster = cluster
        self._zone = zone
        self._clock = clock
        self._window = window
        self._ring = CacheRing(directory, zone, pool, clock)
        self._hedging = HedgingPolicy(limits.hedging)
        self._read_bytes = read_bytes
        self._searches: SingleFlight[tuple[str, tuple[SegmentRead, ...]], Found] = SingleFlight()
        self._hedges = Counter(
            "penstock_gateway_cacher_hedges",
            "Cacher requests that were sent twice because the owner was slow, by the faster side: `owner` or `other`.",
            ["first"],
            registry=registry,
        )
        self._failures = Counter(
            "penstock_gateway_cacher_failures",
            "Cacher requests without a usable answer, by cause: `gone`, `silent` or `corrupt`.",
            ["cause"],
            registry=registry,
        )

    async def fill(self, fragments: Sequence[ReadFragment], found: Found, fill_otherwise: Fill) -> None:
        """Put the fragments that the zone has into `found`, by their numbers; `fill_otherwise` costs GETs."""
        await self._fill_from_own_writer(fragments, found)
        search = _Search(fragments, self._owners(fragments), found, fill_otherwise)
        await run_all(
            [self._fill_part(search, *request) for request in self._requests(search, range(len(fragments)), 0)]
        )

    async def _fill_from_own_writer(self, fragments: Sequence[ReadFragment], found: Found) -> None:
        """Take what the flusher in this process wrote and still keeps: these bytes cross no network."""
        writers = [[each.read.segment.writer] if self._is_own(each.read.segment) else [] for each in fragments]
        if any(writers):
            search = _Search(fragments, writers, found, _do_not_fill)
            await run_all([self._take(search, *each) for each in self._requests(search, range(len(fragments)), 0)])

    def _is_own(self, segment: SegmentRef) -> bool:
        return bool(segment.writer) and self._bus.is_local(self._subject(segment.writer))

    async def _fill_part(self, search: _Search, owner: str, numbers: Sequence[int]) -> None:
        """Ask one owner for its fragments; equal requests at the same time share one answer."""
        fragments = [search.fragments[number] for number in numbers]
        part = _Search(fragments, [search.owners[number] for number in numbers], {}, search.fill_otherwise)
        key = owner, tuple(fragment.read for fragment in fragments)
        found = await self._searches.share(key, lambda: self._find(part, owner))
        search.found.update((numbers[place], view) for place, view in found.items())

    async def _find(self, search: _Search, owner: str) -> Found:
        """The data that the zone has of fragments that all have this owner."""
        await self._ask_or_hedge(search, owner, range(len(search.fragments)))
        # The owner may not have all fragments, or may be gone.
        missing = [number for number in range(len(search.fragments)) if number not in search.found]
        for attempt in range(1, self._limits.owners_asked_max):
            await run_all([self._ask(search, *request) for request in self._requests(search, missing, attempt)])
        return search.found

    async def load_ahead(self, reads: Iterable[SegmentRead]) -> None:
        """Have the owners load ranges that will be read soon; the owners send no answer."""
        by_owner: dict[str, list[SegmentRead]] = {}
        for read in reads:
            for owner in self._ring.owners(part_of(read.segment, read.position), 1):
                by_owner.setdefault(owner, []).append(read)
        for owner, its_reads in by_owner.items():
            await self._bus.publish(self._subject(owner), encode(CacheRequest(its_reads, loads_only=True)))

    def _owners(self, fragments: Sequence[ReadFragment]) -> list[list[str]]:
        """The cachers to ask for each fragment, the owner first."""
        by_part: dict[str, list[str]] = {}
        owners = []
        for fragment in fragments:
            part = part_of(fragment.read.segment, fragment.read.position)
            if part not in by_part:
                by_part[part] = self._ring.owners(part, self._limits.owners_asked_max)
            owners.append(by_part[part])
        return owners

    def _requests(self, search: _Search, numbers: Iterable[int], attempt: int) -> list[tuple[str, list[int]]]:
        """Requests for the fragments with these numbers, in any order, to their owners number `attempt`."""
        by_owner: dict[str, list[int]] = {}
        for number in sorted(numbers, key=lambda number: _place(search.fragments[number].read)):
            if number not in search.found and attempt < len(search.owners[number]):
                by_owner.setdefault(search.owners[number][attempt], []).append(number)
        reply_bytes_max = self._bus.message_bytes_max - REPLY_HEAD_BYTES
        return [
            (owner, group)
            for owner, its_numbers in by_owner.items()
            for group in requests_of(its_numbers, search.fragments, reply_bytes_max)
        ]

    async def _ask_or_hedge(self, search: _Search, owner: str, numbers: Sequence[int]) -> None:
        asking = asyncio.create_task(self._ask(search, owner, numbers))
        tasks = [asking]
        try:
            is_alone = any(len(search.owners[number]) == 1 for number in numbers)
            factor = self._limits.alone_timeout_factor if is_alone else 1
            await asyncio.wait(tasks, timeout=self._hedging.hedge_after_s * factor)
            if not asking.done() and self._hedging.take_hedges(self._gets_of_hedge(search, numbers)):
                tasks.append(asyncio.create_task(self._hedge(search, numbers)))
                await _until(tasks, lambda: all(number in search.found for number in numbers))
                self._record_race(owner, has_won=asking.done())
            else:
                await asking
        finally:
            await _end(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises an error that is no failure of a cacher

    def _gets_of_hedge(self, search: _Search, numbers: Sequence[int]) -> int:
        """How many GETs a hedge may cost."""
        alone = [number for number in numbers if len(search.owners[number]) == 1]
        return len(self._requests(search, numbers, 1)) + len(gets_of(alone, search.fragments))

    async def _hedge(self, search: _Search, numbers: Sequence[int]) -> None:
        """Request the same from the next in the ring, or from the store if there is none."""
        asks = [self._ask(search, *request) for request in self._requests(search, numbers, 1)]
        alone = [number for number in numbers if len(search.owners[number]) == 1]
        await run_all([*asks, search.fill_otherwise(alone, search.fragments, search.found)] if alone else asks)

    def _record_race(self, owner: str, *, has_won: bool) -> None:
        self._hedges.labels("owner" if has_won else "other").inc()
        if has_won:
            self._hedging.record_won(owner)
            return
        avoided_s = self._hedging.record_lost(owner)
        # The only cacher is never avoided: without it each reader would send its own GETs.
        if avoided_s and self._ring.has_others(owner):
            self._ring.avoid(owner, avoided_s)
            log.warning("cacher_slow", instance=owner, avoided_s=avoided_s)

    async def _ask(self, search: _Search, owner: str, numbers: Sequence[int]) -> None:
        """Ask a cacher, and learn from its answer how fast cachers are."""
        answer = await self._take(search, owner, numbers)
        if answer is not None:
            self._hedging.record_answer(owner, answer.at_s, taken_s=answer.taken_s, size_bytes=answer.size_bytes)

    async def _take(self, search: _Search, owner: str, numbers: Sequence[int]) -> _Answer | None:
        """Add the data that an instance has; None if it gave no usable answer."""
        reads = [search.fragments[number].read for number in numbers]
        try:
            async with self._window.hold(sum(read.length for read in reads)):
                started_s = self._clock.monotonic_s()
                with self._traces.stage("cache read", cacher=owner, ranges=len(reads)):
                    request = encode(CacheRequest(reads, trace=current_trace()))
                    answer = await self._bus.request_buffers(
                        self._subject(owner), request, self._limits.cacher_timeout_s
                    )
                now_s = self._clock.monotonic_s()
            views = _split(answer, reads)
        except (Unavailable, Corrupt) as error:
            self._record_failure(owner, error)
            return None
        for number, view in zip(numbers, views, strict=True):
            if view is not None:
                search.found[number] = view
                self._read_bytes.inc(len(view))
        return _Answer(now_s, now_s - started_s, sum(map(len, answer)))

    def _record_failure(self, owner: str, error: PenstockError) -> None:
        cause = "gone" if isinstance(error, Undelivered) else "silent" if isinstance(error, Unavailable) else "corrupt"
        self._failures.labels(cause).inc()
        # A cacher that answers other requests is only busy. If no other cacher can take over, the store would have to,
        # with a GET for each reader.
        is_busy = cause == "silent" and self._hedging.has_answered_since(
            owner, self._clock.monotonic_s() - self._limits.busy_s
        )
        if not is_busy or self._ring.has_others(owner):
            limits = self._limits
            self._ring.avoid(owner, limits.gone_avoided_s if cause == "gone" else limits.silent_avoided_s)
        log.warning("cacher_failed", instance=owner, cause=cause, error=str(error))

    def _subject(self, owner: str) -> str:
        return subjects.cache(self._cluster, self._zone, owner)


async def _do_not_fill(_numbers: Sequence[int], _fragments: Sequence[ReadFragment], _found: Found) -> None:
    """Read nothing elsewhere."""


async def run_all(requests: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Run requests side by side; a single one runs without a task."""
    if len(requests) == 1:
        await requests[0]
        return
    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(request)


async def _until(tasks: Iterable[asyncio.Task[None]], is_enough: Callable[[], bool]) -> None:
    """Return when `is_enough` holds, or no task runs any more."""
    pending = set(tasks)
    while pending and not is_enough():
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel the tasks that still run, and return when none runs."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)


def _place(read: SegmentRead) -> tuple[SegmentId, int]:
    return read.segment.segment_id, read.position


def _split(answer: Sequence[Buffer], reads: Sequence[SegmentRead]) -> list[memoryview | None]:
    """A cacher's answer as one view per range, None for missing ranges; `Corrupt` if it does not fit the reads."""
    reply, payload = unpack(answer, CacheReply)
    if len(reply.lengths) != len(reads):
        raise Corrupt(f"{len(reply.lengths)} answers to {len(reads)} reads")
    for read, length in zip(reads, reply.lengths, strict=True):
        if length not in (-1, read.length):
            raise Corrupt(f"a range of {length} bytes, expected {read.length}")
    views = iter(split(payload, [length for length in reply.lengths if length >= 0]))
    # Several fetches may share the answer, and a cacher of this process may keep its buffers.
    return [next(views).toreadonly() if length >= 0 else None for length in reply.lengths]
