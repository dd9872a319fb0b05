"""How fast history is read while others follow the end of the log: so that they hardly notice it.

Whoever replays takes all that there is time for; and whatever he takes of gateways, cachers and NATS stands before the
newest records that others wait for, some milliseconds for every MiB. Where news is old when it comes, because the store
takes its time, that is nothing; where it comes within milliseconds, it is much. So as long as anybody follows the end,
all who replay through a gateway share a rate that grows with the age of the news; while nobody does, they have all.
Twice of what is written is the least: somebody who fell behind has to be able to catch up.
"""

import asyncio
import math

from penstock.runtime.clock import Clock

MIB = 1024 * 1024
FOLLOWED_S = 10.0  # after somebody got news, more is expected for so long
BYTES_PER_SECOND_MIN = 4 * MIB
BYTES_PER_SECOND_PER_AGE_S = 512 * MIB  # news that is 200 ms old: 100 MiB/s
NEWEST_SHARE = 1 / 16  # of the mean age, what the newest one counts
WRITTEN_S = 10.0  # over about so long it is reckoned how much is written
FASTER = 2  # than all that is written
RATE_MIN = 64 * 1024  # that may be set: an answer takes its time then, but it comes


class CatchUpSlot:
    """When one connection, which reads one answer after the other, may read history again."""

    def __init__(self) -> None:
        self.due_s: float | None = None  # None: it has not asked for a turn yet


class CatchUpThrottle:
    """Lets readers of history through: while they are held back, one after the other, in the order of their coming."""

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        """With a rate of 0 the news's age decides."""
        self._fixed_rate = float(bytes_per_second)
        self._clock = clock
        self._age_s: float | None = None
        self._written = 0.0  # bytes per second, as of the latest news
        self._news_s = 0.0
        self._followed_until_s = 0.0
        self._next_s = 0.0  # when all that was let through so far has had its time

    def record_news(self, age_s: float, size_bytes: int) -> None:
        """So much that is new was announced, so long after the first of it had come to a flusher, by two clocks."""
        self._age_s = age_s if self._age_s is None else self._age_s + (age_s - self._age_s) * NEWEST_SHARE
        self._written = self._written_now() + size_bytes / WRITTEN_S
        self._news_s = self._clock.monotonic_s()

    def _written_now(self) -> float:
        return self._written * math.exp((self._news_s - self._clock.monotonic_s()) / WRITTEN_S)

    def record_followed(self) -> None:
        """Somebody who waited at the end of the log gets what is new."""
        self._followed_until_s = self._clock.monotonic_s() + FOLLOWED_S

    @property
    def is_held(self) -> bool:
        """Whether there is anybody to hold history back for."""
        return self._clock.monotonic_s() < self._followed_until_s

    @property
    def bytes_per_second(self) -> float:
        """What all who replay may have while they are held back."""
        if self._fixed_rate:
            return self._fixed_rate
        return max(
            (self._age_s or 0.0) * BYTES_PER_SECOND_PER_AGE_S, self._written_now() * FASTER, BYTES_PER_SECOND_MIN
        )

    async def until_due(self, turn: CatchUpSlot, size_bytes: int, patience_s: float) -> bool:
        """Wait for one's turn to read so many bytes, no longer than one has patience; who has to go keeps his place."""
        if not self.is_held:
            self._next_s, turn.due_s = 0.0, None
            return True
        now_s = self._clock.monotonic_s()
        if turn.due_s is None:
            turn.due_s = max(self._next_s, now_s)
            self._next_s = turn.due_s + size_bytes / self.bytes_per_second
        wait_s = min(turn.due_s, self._next_s) - now_s  # what was booked before a time without a pace is worth no more
        if wait_s <= patience_s:
            turn.due_s = None
        await asyncio.sleep(min(wait_s, patience_s))
        return wait_s <= patience_s
