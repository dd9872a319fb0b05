"""A reading that is made again while it is wanted: often while pages are open, never without a reader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.clock import Clock

Reading = TypeVar("Reading")
log = structlog.get_logger()


class PollLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often a reading is made."""

    interval_s: float = 5.0
    # A long reading is made less often: at most this share of the time.
    busy_share: float = 0.1
    # No reading is made if nothing asked for one in this time.
    wanted_s: float = 60.0
    # No reading is made for an item that a reading of this age lacks.
    repeat_s: float = 1.0
    # An older reading is made anew before a page is answered.
    fresh_s: float = 12.0


DEFAULT_LIMITS = PollLimits()


class Poll(Generic[Reading]):
    """The newest reading, and the loop that replaces it."""

    def __init__(
        self, name: str, read: Callable[[], Awaitable[Reading]], clock: Clock, *, limits: PollLimits = DEFAULT_LIMITS
    ) -> None:
        self.error = ""  # why the last attempt failed
        self._name = name
        self._read = read
        self._clock = clock
        self._limits = limits
        self._newest: Reading | None = None
        self._read_s = 0.0
        self._took_s = 0.0
        self._wanted_s = float("-inf")
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._attempts = 0  # that have ended

    async def current(self) -> Reading:
        """The newest reading, made now if it is too old; `Unavailable` if that fails."""
        now_s = self._wanted_s = self._clock.monotonic_s()
        self._wanted.set()
        fresh_s = max(self._limits.fresh_s, self._pause_s() * 2)
        if self._newest is not None and now_s - self._read_s <= fresh_s:
            return self._newest
        return await self.refresh(since_s=now_s - fresh_s)

    async def with_item(self, has_item: Callable[[Reading], bool]) -> Reading:
        """The newest reading, or a new one if it lacks an item, which may be younger than the reading."""
        found = await self.current()
        if has_item(found):
            return found
        return await self.refresh(since_s=self._clock.monotonic_s() - self._limits.repeat_s)

    def newest_wanted(self) -> Reading | None:
        """The newest reading, None if it is old; readings go on for a while."""
        self._wanted_s = self._clock.monotonic_s()
        self._wanted.set()
        is_old = self._clock.monotonic_s() - self._read_s > self._limits.wanted_s
        return None if is_old else self._newest

    async def refresh(self, *, since_s: float | None = None) -> Reading:
        """A reading that began after `since_s`, by default after this call.

        `Unavailable` also if another task waits for the same reading, and that fails: each failure may take long.
        """
        since_s = self._clock.monotonic_s() if since_s is None else since_s
        attempts = self._attempts
        async with self._lock:
            if self._attempts > attempts and self.error:
                raise Unavailable(self.error)
            if self._newest is None or self._read_s < since_s:
                await self._make()
            assert self._newest is not None, "a reading was made"
            return self._newest

    async def run(self) -> None:
        """Make readings while they are wanted, for ever."""
        while True:
            await self._wanted.wait()
            if self._clock.monotonic_s() - self._wanted_s > self._limits.wanted_s:
                self._wanted.clear()
                continue
            await asyncio.sleep(self._pause_s())
            try:
                await self.refresh()
            except PenstockError as error:
                log.warning("reading_failed", reading=self._name, error=str(error))

    def _pause_s(self) -> float:
        return max(self._limits.interval_s, self._took_s / self._limits.busy_share)

    async def _make(self) -> None:
        began_s = self._clock.monotonic_s()
        try:
            self._newest = await self._read()
        except PenstockError as error:
            self.error = str(error)
            raise
        except (TimeoutError, OSError) as error:
            self.error = str(error) or type(error).__name__
            raise Unavailable(self.error) from error
        finally:
            self._attempts += 1
        self.error = ""
        self._read_s = began_s
        self._took_s = self._clock.monotonic_s() - began_s
