"""Feeds announcements from the bus to the tail index, and wakes the fetches that wait for new data."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from penstock.contracts import subjects
from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.codec import decode
from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import segment_born_ms
from penstock.contracts.messages import Advanced
from penstock.contracts.queries.log import Plan
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.clock import Clock
from penstock_gateway.tail.tail_index import PartitionKey, PartitionView, Received, Tail, TailIndex

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

log = structlog.get_logger()


class Topics(Protocol):
    """The part of the topic cache that the subscriber needs: the removal of changed topics."""

    def remove(self, names: Iterable[str]) -> None: ...

    def remove_all(self) -> None: ...


class Sequences(Protocol):
    """The part of the sequencer client that the subscriber needs: the journal sequence and level that were seen."""

    def record_sequence(self, sequence: int) -> None: ...

    def record_level(self, level: int) -> None: ...


def _ignore(sequence: int) -> None:
    """The reaction to changed quotas, users, bindings or tokens without a cache of them."""


def _ignore_dead_letters(groups: int) -> None:
    """The reaction to groups with pending dead letters without a writer of them."""


def _ignore_topics(names: Iterable[str]) -> None:
    """The reaction to changed topics without metrics of topics."""


def _ignore_new_data(age_s: float, size_bytes: int) -> None:
    """The reaction to new data without a throttle."""


class TailWatch:
    """A fetch's wait for new data of some partitions, within the block; the first new data ends it.

    Thousands of waits end without new data, so a wait costs no more than a timer.
    """

    __slots__ = ("_keys", "_waiter", "_watches", "woken_s")

    def __init__(self, watches: "TailWatches", keys: Collection[PartitionKey]) -> None:
        self._watches = watches
        self._keys = keys
        self._waiter: asyncio.Future[bool] | None = None
        self.woken_s: float | None = None  # when the first new data came, by the loop's clock

    def __enter__(self) -> "TailWatch":
        for key in self._keys:
            self._watches.setdefault(key, {})[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        for key in self._keys:
            others = self._watches.get(key)
            if others is not None:
                others.pop(self, None)
                if not others:
                    del self._watches[key]

    def wake(self) -> None:
        """Record that there is new data, and end the wait."""
        if self.woken_s is None:
            self.woken_s = asyncio.get_running_loop().time()
        self._end(is_new_data=True)

    @property
    def has_waited(self) -> bool:
        """Whether the fetch has begun to wait, or has waited."""
        return self._waiter is not None

    async def until(self, deadline_s: float) -> bool:
        """Wait for new data until the loop's clock shows `deadline_s`; return whether it came, now or before."""
        if self.woken_s is not None:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(deadline_s, self._expire)
        try:
            return await self._waiter
        finally:
            timer.cancel()

    def _expire(self) -> None:
        self._end(is_new_data=False)

    def _end(self, *, is_new_data: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(is_new_data)


TailWatches = dict[PartitionKey, dict[TailWatch, None]]


class TailSubscriber:
    """Brings the sequencers' announcements to readers near the end of the log."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        clock: Clock,
        sequencer: Sequences,
        topics: Topics,
        registry: CollectorRegistry,
        index: TailIndex | None = None,
        record_quotas: Callable[[int], None] = _ignore,
        record_security: Callable[[int], None] = _ignore,
        record_tokens: Callable[[int], None] = _ignore,
        record_subscriptions: Callable[[int], None] = _ignore,
        record_new_data: Callable[[float, int], None] = _ignore_new_data,
        record_changed_topics: Callable[[Iterable[str]], None] = _ignore_topics,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._clock = clock
        self._sequencer = sequencer
        self._topics = topics
        self._record_quotas = record_quotas
        self._record_security = record_security
        self._record_tokens = record_tokens
        self._record_subscriptions = record_subscriptions
        self._record_new_data = record_new_data
        self._record_changed_topics = record_changed_topics
        self.record_dead_letters: Callable[[int], None] = _ignore_dead_letters
        self._tail = Tail(index or TailIndex(monotonic_s=clock.monotonic_s))
        self._watches: TailWatches = {}  # woken in the order in which they began
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._losses = Counter(
            "penstock_gateway_tail_losses",
            "Times that the tail index was cleared: an announcement was missing, or the first one arrived.",
            registry=registry,
        )
        self._answered_seconds = Histogram(
            "penstock_gateway_tail_answer_seconds",
            "Time from new data of a partition to the answer of a fetch that waited for it, bytes included.",
            buckets=SECONDS,
            registry=registry,
        )
        self._announced_seconds = Histogram(
            "penstock_gateway_announced_seconds",
            "Time from the creation of a flushed segment to its announcement, by the clocks of the flusher and "
            "the gateway.",
            buckets=SECONDS,
            registry=registry,
        )

    async def open(self) -> None:
        """Subscribe to the announcements."""
        self._subscription = await self._bus.subscribe(subjects.advanced(self._cluster), self._receive)

    async def close(self) -> None:
        """End the subscription; fetches that wait are not woken."""
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    def lookup(self, key: PartitionKey, offset: int, bytes_max: int) -> PartitionView | None:
        """The extents to read from `offset` on, as `TailIndex.lookup`; None: ask for a plan."""
        return self._tail.index.lookup(key, offset, bytes_max)

    def learn(self, plan: Plan, offsets: Sequence[int]) -> None:
        """Record the partitions of a plan for these offsets."""
        for partition, offset in zip(plan.partitions, offsets, strict=True):
            self._tail.index.learn(plan.sequence, partition, offset)

    def remove(self, key: PartitionKey) -> None:
        """Remove a partition, because its extents could not be read."""
        self._tail.index.remove(key)

    def wake_all(self) -> None:
        """Wake all waits; the fetches also check whether their client is leaving."""
        self._wake(list(self._watches))

    def record_answered(self, woken_s: float) -> None:
        """Record the answer to a fetch that was woken at `woken_s`, by the loop's clock."""
        self._answered_seconds.observe(asyncio.get_running_loop().time() - woken_s)

    @property
    def applied_sequence(self) -> int | None:
        """The journal sequence of the last applied announcement, None before the first."""
        return self._tail.index.applied

    @property
    def watched_partitions(self) -> int:
        """How many partitions fetches wait for."""
        return len(self._watches)

    def watch(self, keys: Collection[PartitionKey]) -> TailWatch:
        """Watch for new data of these partitions, and for changes of topics, until the end of the block."""
        return TailWatch(self._watches, keys)

    async def _receive(self, inbound: Inbound) -> None:
        try:
            advanced = decode(inbound.data, Advanced)
        except Corrupt as error:
            log.error("announcement_unreadable", error=str(error))  # its sequence is missing, so the index is cleared
            return
        self._sequencer.record_sequence(advanced.sequence)
        self._record_quotas(advanced.quotas_sequence)
        self._record_security(advanced.security_altered_sequence)
        self._record_tokens(advanced.tokens_altered_sequence)
        self._record_subscriptions(advanced.metrics_altered_sequence)
        self.record_dead_letters(advanced.dead_letter_groups)
        self._sequencer.record_level(advanced.level)
        self._record_age(advanced)
        self._notify(self._tail.receive(advanced, self._clock.monotonic_s()))
        self._arm()

    def _record_age(self, advanced: Advanced) -> None:
        """Record the age of new data; if several segments were committed at once, the age of one."""
        segment = next((change.extents[-1].segment for change in advanced.partitions if change.extents), None)
        if segment is not None and segment.level == 0 and segment.segment_id != NO_SEGMENT_ID:
            age_ms = self._clock.now_ms() - segment_born_ms(segment.segment_id)
            age_s = max(age_ms, 0) / 1000
            self._announced_seconds.observe(age_s)
            size_bytes = sum(extent.length for change in advanced.partitions for extent in change.extents)
            self._record_new_data(age_s, size_bytes)

    def _arm(self) -> None:
        """Set a timer to the time at which a missing announcement is overdue."""
        overdue_s = self._tail.overdue_s(self._clock.monotonic_s())
        if overdue_s is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(overdue_s, 0), self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._notify(self._tail.expire(self._clock.monotonic_s()))
        self._arm()

    def _notify(self, received: Received) -> None:
        if received.lost:
            self._losses.inc()
            log.info("tail_index_cleared", sequence=self._tail.index.applied)
            self._topics.remove_all()
        elif received.topics:
            self._topics.remove(received.topics)
            self._record_changed_topics(received.topics)
        if received.lost or received.topics:
            self.wake_all()
        else:
            self._wake(received.partitions)

    def _wake(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            for watch in self._watches.get(key, ()):
                watch.wake()


class HasTail(Protocol):
    @property
    def tail(self) -> TailSubscriber: ...
