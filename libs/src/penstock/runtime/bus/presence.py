"""Presence: every instance announces itself once a second, and a directory lists the live instances."""

import asyncio
import contextlib
import math
from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.codec import decode, encode
from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.messages import Presence
from penstock.contracts.subjects import presence, presence_all
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.beat import next_beat_s

CHECK_DELAY_S = 0.001  # so that a check at the end of a silence does not come too early

log = structlog.get_logger()


class PresenceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often instances announce themselves, and how long a directory keeps a silent one."""

    announce_interval_ms: int = 1000
    # The shortest time between two announcements, also when many new instances appear.
    announce_gap_ms: int = 50
    # A new instance waits so long for the announcements of others: the gap, and the way of two messages.
    answer_wait_ms: int = 150
    # An instance that is silent for longer counts as gone. Two announcements in a row may be lost.
    silence_ms_max: int = 3000
    # The longest time between two checks for silent instances. Another check is at the end of each silence.
    expire_interval_ms: int = 250
    # If this process did not check for so long, it was itself stalled, and the silence proves nothing.
    stall_ms: int = 1000


DEFAULT_LIMITS = PresenceLimits()


class Directory:
    """The instances of the cluster whose announcements arrived lately."""

    def __init__(self, bus: Bus, cluster: str, clock: Clock, *, limits: PresenceLimits = DEFAULT_LIMITS) -> None:
        self._bus = bus
        self._cluster = cluster
        self._clock = clock
        self._limits = limits
        self._known: dict[str, Presence] = {}
        self._heard_s: dict[str, float] = {}
        # Silence counts from this time at the earliest: before it, no announcement could arrive here.
        self._listening_since_s = clock.monotonic_s()
        self._checked_s = clock.monotonic_s()
        self._callbacks: list[Callable[[], None]] = []
        self._newcomer_callbacks: list[Callable[[Presence], None]] = []
        self._announcement_callbacks: list[Callable[[Presence], None]] = []
        self._subscription: Subscription | None = None

    async def open(self, *, may_be_denied: bool = False) -> None:
        """Subscribe to the announcements. With `may_be_denied`, a bus that denies it leaves the directory empty."""
        self._subscription = await self._bus.subscribe(
            presence_all(self._cluster), self._hear, may_be_denied=may_be_denied
        )

    async def run(self) -> None:
        """Remove silent instances, for ever."""
        while True:
            await asyncio.sleep(self._pause_s())
            self.expire()

    def _pause_s(self) -> float:
        """Until the next common instant, or until an instance would be silent for too long."""
        now_s = asyncio.get_running_loop().time()
        pause_s = next_beat_s(now_s, self._limits.expire_interval_ms / 1000) - now_s
        since_s = max(min(self._heard_s.values(), default=math.inf), self._listening_since_s)
        silent_in_s = since_s + self._limits.silence_ms_max / 1000 - self._clock.monotonic_s()
        return min(pause_s, silent_in_s + CHECK_DELAY_S) if silent_in_s > 0 else pause_s

    async def close(self) -> None:
        """End the subscription."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
            self._subscription = None

    def live(self, role: str, zone: str | None = None, pool: str | None = None) -> list[Presence]:
        """The instances of a role (in a zone, of a pool) that take work, sorted by name."""
        found = [
            each
            for each in self._known.values()
            if each.role == role and zone in (None, each.zone) and pool in (None, each.pool) and self._takes_work(each)
        ]
        return sorted(found, key=lambda each: each.instance)

    def get(self, instance: str) -> Presence | None:
        """The last announcement of an instance, also of a leaving one; None if it is silent for too long."""
        known = self._known.get(instance)
        return known if known is not None and not self._is_silent(instance) else None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call back whenever an instance appears, leaves, falls silent or changes its addresses."""
        self._callbacks.append(callback)

    def on_newcomer(self, callback: Callable[[Presence], None]) -> None:
        """Call back whenever an instance announces itself for the first time since its start."""
        self._newcomer_callbacks.append(callback)

    def on_announcement(self, callback: Callable[[Presence], None]) -> None:
        """Call back with each announcement."""
        self._announcement_callbacks.append(callback)

    def expire(self) -> None:
        """Remove the silent instances."""
        now_s = self._clock.monotonic_s()
        if not self._bus.is_connected or now_s - self._checked_s > self._limits.stall_ms / 1000:
            self._listening_since_s = now_s
        self._checked_s = now_s
        # One test for all instances first, because this runs often and rarely finds a silent instance.
        since_s = now_s - self._limits.silence_ms_max / 1000
        if self._listening_since_s >= since_s or all(heard_s >= since_s for heard_s in self._heard_s.values()):
            return
        silent = [instance for instance in self._known if self._is_silent(instance)]
        for instance in silent:
            log.info("instance_gone", peer=instance, role=self._known[instance].role)
            del self._known[instance]
            del self._heard_s[instance]
        if silent:
            self._report_change()

    async def _hear(self, message: Inbound) -> None:
        try:
            heard = decode(message.data, Presence)
        except Corrupt as error:
            log.warning("presence_not_decoded", subject=message.subject, error=str(error))
            return
        before = self.get(heard.instance)
        self._known[heard.instance] = heard
        self._heard_s[heard.instance] = self._clock.monotonic_s()
        for callback in self._announcement_callbacks:
            callback(heard)
        if before is None or before.started_ms != heard.started_ms:
            for callback in self._newcomer_callbacks:
                callback(heard)
        if before is None or _reported_facts(heard) != _reported_facts(before):
            self._report_change()

    def _is_silent(self, instance: str) -> bool:
        silent_s = self._clock.monotonic_s() - max(self._heard_s[instance], self._listening_since_s)
        return silent_s > self._limits.silence_ms_max / 1000 and self._bus.is_connected

    def _takes_work(self, each: Presence) -> bool:
        return not each.leaving and not self._is_silent(each.instance)

    def _report_change(self) -> None:
        for callback in self._callbacks:
            callback()


def _reported_facts(announced: Presence) -> tuple[object, ...]:
    """The fields of an announcement whose change is reported to the subscribers."""
    return announced.role, announced.zone, announced.pool, announced.listeners, announced.leaving


class Announcer:
    """Announces this instance every second. With a directory, it also does so when a new instance appears."""

    def __init__(
        self,
        bus: Bus,
        cluster: str,
        make: Callable[[], Presence],
        directory: Directory | None = None,
        *,
        limits: PresenceLimits = DEFAULT_LIMITS,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._make = make
        self._limits = limits
        self._leaving = False
        self._asked = asyncio.Event()
        if directory is not None:
            directory.on_newcomer(self._meet)

    async def run(self) -> None:
        """Announce every second, for ever. All instances of a machine do so together, which wakes the server once."""
        limits, loop = self._limits, asyncio.get_running_loop()
        while True:
            await self.announce()
            gap_ends_s = loop.time() + limits.announce_gap_ms / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_beat_s(loop.time(), limits.announce_interval_ms / 1000)):
                    await self._asked.wait()
                    await asyncio.sleep(gap_ends_s - loop.time())
            self._asked.clear()

    async def announce(self) -> None:
        """Announce now."""
        own = self._make()
        if self._leaving:
            own = msgspec.structs.replace(own, leaving=True)
        await self._bus.publish(presence(self._cluster, own.role, own.zone, own.instance), encode(own))

    async def until_answered(self) -> None:
        """Announce now, and return when live instances have had the time to answer; a directory must be open."""
        while True:
            try:
                await self._bus.flush()  # without a connection, an announcement is lost
                await self.announce()
                await asyncio.sleep(self._limits.answer_wait_ms / 1000)
                return await self._bus.flush()  # all answers that the servers have by now arrive before this returns
            except Unavailable as error:
                log.warning("bus_not_flushed", error=str(error))
                await asyncio.sleep(self._limits.announce_gap_ms / 1000)

    async def leave(self) -> None:
        """Announce now, and in all later announcements, that this instance takes no new work."""
        self._leaving = True
        await self.announce()

    def _meet(self, newcomer: Presence) -> None:
        if newcomer.instance != self._make().instance:
            self._asked.set()
