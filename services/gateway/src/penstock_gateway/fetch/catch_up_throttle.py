"""Throttles catch-up reads while other clients tail, so that tailing clients hardly notice them (ADR 0019).

Catch-up readers take all the capacity that is free. The bytes that they take of gateways, cachers and NATS delay the
newest records by some milliseconds for every MiB. Where new data is old when it arrives, because the store is slow,
that delay is small. Where it arrives within milliseconds, the delay is large. So while any client tails, all catch-up
reads through a gateway share a rate that grows with the age of new data; while no client tails, they have all.

The rate is at least twice the rate of new data, because a reader that fell behind must be able to catch up.
"""

import asyncio
import math

from penstock.runtime.clock import Clock
from penstock_gateway.fetch.limits import ThrottleLimits

RATE_MIN = 64 * 1024  # bytes per second that may be configured: an answer is slow then, but it comes


class CatchUpSlot:
    """When one connection, which reads one answer after the other, may read old data again."""

    def __init__(self) -> None:
        self.due_s: float | None = None  # None: it is not in the queue


class CatchUpThrottle:
    """Lets catch-up reads through; while they are throttled, one after the other, in the order of arrival."""

    def __init__(self, bytes_per_second: int, clock: Clock, limits: ThrottleLimits | None = None) -> None:
        """With a rate of 0 the age of new data decides."""
        self._fixed_rate = float(bytes_per_second)
        self._clock = clock
        self._limits = limits or ThrottleLimits()
        self._age_s: float | None = None
        self._written = 0.0  # bytes per second, as of the latest new data
        self._new_data_s = 0.0
        self._tailed_until_s = 0.0
        self._next_s = 0.0  # when all that was let through so far has had its time

    def record_new_data(self, age_s: float, size_bytes: int) -> None:
        """New data was announced, `age_s` after its first byte came to a flusher, by the clocks of two machines."""
        newest_share = self._limits.newest_share
        self._age_s = age_s if self._age_s is None else self._age_s + (age_s - self._age_s) * newest_share
        self._written = self._written_now() + size_bytes / self._limits.written_s
        self._new_data_s = self._clock.monotonic_s()

    def _written_now(self) -> float:
        return self._written * math.exp((self._new_data_s - self._clock.monotonic_s()) / self._limits.written_s)

    def record_tailing_read(self) -> None:
        """A client that waited at the end of a log gets new data."""
        self._tailed_until_s = self._clock.monotonic_s() + self._limits.tailed_s

    @property
    def is_active(self) -> bool:
        """Whether a client tails, so that catch-up reads are throttled."""
        return self._clock.monotonic_s() < self._tailed_until_s

    @property
    def bytes_per_second(self) -> float:
        """The rate of all catch-up reads together while they are throttled."""
        if self._fixed_rate:
            return self._fixed_rate
        by_age = (self._age_s or 0.0) * self._limits.bytes_per_second_per_age_s
        return max(by_age, self._written_now() * self._limits.written_factor, self._limits.bytes_per_second_min)

    async def wait(self, slot: CatchUpSlot, size_bytes: int, timeout_s: float) -> bool:
        """Wait until the slot may read so many bytes, `timeout_s` at most; after a time-out it keeps its place."""
        if not self.is_active:
            self._next_s, slot.due_s = 0.0, None
            return True
        now_s = self._clock.monotonic_s()
        if slot.due_s is None:
            slot.due_s = max(self._next_s, now_s)
            self._next_s = slot.due_s + size_bytes / self.bytes_per_second
        # A place that was taken before a time without throttling may lie behind all the others: it counts no more.
        wait_s = min(slot.due_s, self._next_s) - now_s
        if wait_s <= timeout_s:
            slot.due_s = None
        await asyncio.sleep(min(wait_s, timeout_s))
        return wait_s <= timeout_s
