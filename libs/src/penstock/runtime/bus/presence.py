"""Who is there: every instance says each second that it lives, and everybody keeps a directory of what was heard."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.codec import decode, encode
from penstock.contracts.errors import Corrupt
from penstock.contracts.messages import Presence
from penstock.contracts.subjects import presence, presence_all
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.clock import Clock

ANNOUNCE_INTERVAL_MS = 1000
ANNOUNCE_GAP_MS = 50  # the shortest time between two announcements, however many newcomers ask for one
SILENCE_MS_MAX = 3000
EXPIRE_INTERVAL_MS = 200
STALL_MS = 1000  # if our own loop comes this late, the silence was ours

log = structlog.get_logger()


class Directory:
    """All instances of the cluster that were heard lately."""

    def __init__(self, bus: Bus, cluster: str, clock: Clock) -> None:
        self._bus = bus
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, Presence] = {}
        self._heard_s: dict[str, float] = {}
        # Silence counts from here at the earliest: before it, we could not have heard anybody.
        self._listening_since_s = clock.monotonic_s()
        self._checked_s = clock.monotonic_s()
        self._callbacks: list[Callable[[], None]] = []
        self._newcomer_callbacks: list[Callable[[Presence], None]] = []
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Listen."""
        self._subscription = await self._bus.subscribe(presence_all(self._cluster), self._hear)

    async def run(self) -> None:
        """Forget who fell silent, for ever."""
        while True:
            await asyncio.sleep(EXPIRE_INTERVAL_MS / 1000)
            self.expire()

    async def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
            self._subscription = None

    def live(self, role: str, zone: str | None = None) -> list[Presence]:
        """The instances of a role (in a zone) that take work, by name."""
        found = [
            each
            for each in self._known.values()
            if each.role == role and (zone is None or each.zone == zone) and self._takes_work(each)
        ]
        return sorted(found, key=lambda each: each.instance)

    def get(self, instance: str) -> Presence | None:
        """What an instance last said, also when it is leaving; None when it was not heard of for three seconds."""
        known = self._known.get(instance)
        return known if known is not None and not self._is_silent(instance) else None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call back whenever an instance comes, leaves, falls silent or changes its addresses."""
        self._callbacks.append(callback)

    def on_newcomer(self, callback: Callable[[Presence], None]) -> None:
        """Call back whenever an instance is heard for the first time."""
        self._newcomer_callbacks.append(callback)

    def expire(self) -> None:
        """Forget who fell silent until now."""
        now_s = self._clock.monotonic_s()
        if not self._bus.is_connected or now_s - self._checked_s > STALL_MS / 1000:
            self._listening_since_s = now_s
        self._checked_s = now_s
        # All at once, as this is done often and mostly finds nobody.
        since_s = now_s - SILENCE_MS_MAX / 1000
        if self._listening_since_s >= since_s or all(heard_s >= since_s for heard_s in self._heard_s.values()):
            return
        silent = [instance for instance in self._known if self._is_silent(instance)]
        for instance in silent:
            log.info("instance_gone", peer=instance, role=self._known[instance].role)
            del self._known[instance]
            del self._heard_s[instance]
        if silent:
            self._tell_change()

    async def _hear(self, message: Inbound) -> None:
        try:
            heard = decode(message.data, Presence)
        except Corrupt as error:
            log.warning("presence_not_understood", subject=message.subject, error=str(error))
            return
        before = self.get(heard.instance)
        self._known[heard.instance] = heard
        self._heard_s[heard.instance] = self._clock.monotonic_s()
        if before is None:
            for callback in self._newcomer_callbacks:
                callback(heard)
        if before is None or _what_matters(heard) != _what_matters(before):
            self._tell_change()

    def _is_silent(self, instance: str) -> bool:
        silent_s = self._clock.monotonic_s() - max(self._heard_s[instance], self._listening_since_s)
        return silent_s > SILENCE_MS_MAX / 1000 and self._bus.is_connected

    def _takes_work(self, each: Presence) -> bool:
        return not each.leaving and not self._is_silent(each.instance)

    def _tell_change(self) -> None:
        for callback in self._callbacks:
            callback()


def _what_matters(said: Presence) -> tuple[object, ...]:
    """Of what an instance says, what those want to know at once who asked to be called back."""
    return said.role, said.zone, said.listeners, said.leaving


class Announcer:
    """Says that this instance lives; with a directory, also at once when a newcomer should know it."""

    def __init__(
        self, bus: Bus, cluster: str, make: Callable[[], Presence], directory: Directory | None = None
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._make = make
        self._leaving = False
        self._asked = asyncio.Event()
        if directory is not None:
            directory.on_newcomer(self._meet)

    async def run(self) -> None:
        """Announce every second, for ever."""
        while True:
            await self.announce()
            await asyncio.sleep(ANNOUNCE_GAP_MS / 1000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((ANNOUNCE_INTERVAL_MS - ANNOUNCE_GAP_MS) / 1000):
                    await self._asked.wait()
            self._asked.clear()

    async def announce(self) -> None:
        """Announce now."""
        said = self._make()
        if self._leaving:
            said = msgspec.structs.replace(said, leaving=True)
        await self._bus.publish(presence(self._cluster, said.role, said.zone, said.instance), encode(said))

    async def leave(self) -> None:
        """Announce now, and from now on, that nothing new should be sent here."""
        self._leaving = True
        await self.announce()

    def _meet(self, newcomer: Presence) -> None:
        if newcomer.instance != self._make().instance:
            self._asked.set()
