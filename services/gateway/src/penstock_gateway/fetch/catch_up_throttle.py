"""Throttles catch-up reads while other clients tail, so that tailing clients hardly notice them (ADR 0019).

Catch-up readers take all the capacity that is free. Each MiB that they move through gateways, cachers and NATS delays
the newest records by some milliseconds. Compared with the age of new data on arrival, that delay is small if the store
is slow. It is large if new data arrives within milliseconds. So while any client tails, all catch-up reads through a
gateway share one rate. That rate grows with the age of new data. While no client tails, there is no limit.

The rate is at least twice the rate of new data: a reader that fell behind must be able to catch up.
"""

import asyncio
import math

from penstock.runtime.clock import Clock
from penstock_gateway.fetch.limits import ThrottleLimits

RATE_MIN = 64 * 1024  # bytes per second, the least that may be configured; an answer is slow then, but it comes


class CatchUpSlot:
    """The time at which one connection may read old data again; it reads one answer after the other."""

    def __init__(self) -> None:
        self.due_s: float | None = None  # None: it is not in the queue
        self.length_s = 0.0  # of its place in the queue
        self.ends_with_connection = False  # whether `leave` is called then


class CatchUpThrottle:
    """Admits catch-up reads; while they are throttled, one after the other, in the order of arrival."""

    def __init__(self, bytes_per_second: int, clock: Clock, limits: ThrottleLimits | None = None) -> None:
        """With a rate of 0 the age of new data sets the rate."""
        self._fixed_rate = float(bytes_per_second)
        self._clock = clock
        self._limits = limits or ThrottleLimits()
        self._age_s: float | None = None
        self._written = 0.0  # bytes per second, as of the latest new data
        self._new_data_s = 0.0
        self._tailed_until_s = 0.0
        self._next_s = 0.0  # when the bytes of all admitted reads have had their time

    def record_new_data(self, age_s: float, size_bytes: int) -> None:
        """Record new data, announced `age_s` after its first byte reached a flusher, by the clocks of two machines."""
        newest_share = self._limits.newest_share
        self._age_s = age_s if self._age_s is None else self._age_s + (age_s - self._age_s) * newest_share
        self._written = self._written_now() + size_bytes / self._limits.written_s
        self._new_data_s = self._clock.monotonic_s()

    def _written_now(self) -> float:
        return self._written * math.exp((self._new_data_s - self._clock.monotonic_s()) / self._limits.written_s)

    def record_tailing_read(self) -> None:
        """Record that a client that waited at the end of a log gets new data."""
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
        """Wait until the slot may read `size_bytes`, or return false after `timeout_s`; the slot then keeps its place.

        Return whether it may read now.
        """
        if not self.is_active:
            self._next_s, slot.due_s = 0.0, None
            return True
        now_s = self._clock.monotonic_s()
        if slot.due_s is None:
            slot.due_s = max(self._next_s, now_s)
            slot.length_s = size_bytes / self.bytes_per_second
            self._next_s = slot.due_s + slot.length_s
        # A place taken before a time without throttling may be later than all other places: then it no longer counts.
        wait_s = min(slot.due_s, self._next_s) - now_s
        await asyncio.sleep(min(wait_s, timeout_s))
        if wait_s > timeout_s:
            return False
        slot.due_s = None
        return True

    def leave(self, slot: CatchUpSlot) -> None:
        """Give back the place of a client that has left. Else the clients behind it would wait for nothing."""
        if slot.due_s is not None and self._clock.monotonic_s() < slot.due_s < self._next_s:
            self._next_s -= slot.length_s
        slot.due_s = None
