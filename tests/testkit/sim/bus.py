"""A bus with core NATS' promises and every fault that they allow: late, lost, cut off, silent, in parts.

Each connection is at one of several servers. What it sends travels up to its server, is routed there, and travels down
to each receiver; both ways keep their order. A cut loses what is on the way in both directions. A silent connection
looks whole and carries nothing. Between servers that are severed nothing passes, which they notice after a while.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import crc32c

from penstock.contracts.errors import Unavailable
from tests.testkit.memory_bus import MemoryBus, MemoryHub, MemoryInbound, MemorySubscription, Nothing, matches
from tests.testkit.sim.wire import Wire

FLUSH_TIMEOUT_S = 5.0  # as the real bus'
SERVERS = 3

Note = Callable[[str], None]


@dataclass
class BusFaults:
    """What goes wrong with single messages, as shares of them."""

    lost_share: float = 0.0  # on the way to one receiver
    twice_share: float = 0.0  # only what is published to all, which every receiver must take twice


@dataclass
class Link:
    """One connection."""

    server: int
    generation: int = 0  # of the connection: what was on its way when it broke never comes
    is_silent: bool = False


@dataclass
class Severed:
    """Servers that do not reach each other."""

    pairs: set[tuple[int, int]] = field(default_factory=set)
    is_noticed: bool = False

    def parts(self, one: int, other: int) -> bool:
        """Whether nothing passes between the two."""
        return (min(one, other), max(one, other)) in self.pairs


class SimHub(MemoryHub):
    """All servers and connections of one bus."""

    def __init__(self, wire: Wire, note: Note = lambda _: None) -> None:
        super().__init__()
        self.faults = BusFaults()
        self.severed = Severed()
        self.on_answer: Callable[[str, bytes], None] = lambda sender, data: None
        self._wire = wire
        self._note = note
        self._links: dict[str, Link] = {}
        self._receivers: dict[str, list[MemorySubscription]] = {}

    def connect(self, name: str, server: int = 0) -> MemoryBus:
        """A new connection to a server."""
        self._links[name] = Link(server)
        return super().connect(name)

    def add(self, subscription: MemorySubscription) -> None:
        super().add(subscription)
        self._receivers.clear()

    def remove(self, subscription: MemorySubscription) -> None:
        super().remove(subscription)
        self._receivers.clear()

    def cut(self, name: str) -> None:
        """Break a connection."""
        if name in self._buses:
            self._links[name].generation += 1
            self._buses[name].cut()

    def mend(self, name: str) -> None:
        """Connect again, if the process is still there."""
        if name in self._buses:
            self._links[name].is_silent = False
            self._buses[name].mend()

    def silence(self, name: str) -> None:
        """Carry nothing for a connection from now on, without a word."""
        if name in self._links:
            self._links[name].is_silent = True

    def kill(self, name: str) -> None:
        if name in self._buses:
            self._links[name].generation += 1
            super().kill(name)

    def reaches(self, name: str, server: int) -> bool:
        """Whether what a connection sends gets as far as a server."""
        link, bus = self._links[name], self._buses.get(name)
        return (
            bus is not None and bus.is_connected and not link.is_silent and not self.severed.parts(link.server, server)
        )

    def generation(self, name: str) -> int:
        """Changes when the connection breaks."""
        return self._links[name].generation

    def send(self, sender: MemoryBus, subject: str, data: bytes, reply: str) -> None:
        link = self._links[sender.name]
        if not link.is_silent:
            self._wire.carry(("up", sender.name), self._arrive, sender, link.generation, subject, data, reply)

    async def echo(self, bus: MemoryBus, at_server: Callable[[], None] = lambda: None) -> None:
        link = self._links[bus.name]
        done = asyncio.get_running_loop().create_future()

        def came_back(generation: int) -> None:
            if generation == link.generation and not link.is_silent and not done.done():
                done.set_result(None)

        def arrived(generation: int) -> None:
            at_server()
            self._wire.carry(("down", bus.name), came_back, generation)

        self._wire.carry(("up", bus.name), arrived, link.generation)
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await done
        except TimeoutError as error:
            raise Unavailable("the nats servers do not answer") from error

    async def withdraw(self, subscription: MemorySubscription) -> None:
        with contextlib.suppress(Unavailable):
            await self.echo(subscription.bus, lambda: self.remove(subscription))
        self.remove(subscription)

    def _arrive(self, sender: MemoryBus, generation: int, subject: str, data: bytes, reply: str) -> None:
        link = self._links[sender.name]
        if link.generation != generation or link.is_silent:
            return
        self._note(f"bus {sender.name} > {subject} {len(data)} {crc32c.crc32c(data):08x}")
        if subject.startswith("_INBOX."):
            self.on_answer(sender.name, data)
            self._answer(link, subject, data)
            return
        if not self._deliver(link, subject, data, reply) and reply:
            self._down(sender.name, sender.take_answer, reply, Nothing.NOBODY_LISTENS)

    def _answer(self, sender: Link, subject: str, data: bytes) -> None:
        bus = self._buses.get(subject.split(".")[1])
        if bus is None or not bus.is_connected or self._is_lost():
            return
        if not self.severed.parts(sender.server, self._links[bus.name].server):
            self._down(bus.name, bus.take_answer, subject, data)

    def _deliver(self, sender: Link, subject: str, data: bytes, reply: str) -> bool:
        """Send it to all who should get it; whether there was anybody."""
        groups: dict[tuple[str, str], list[MemorySubscription]] = {}
        for subscription in self._listeners(subject):
            if not subscription.bus.is_connected:
                continue
            if self.severed.is_noticed and self._is_severed(sender, subscription):
                continue
            alone = "" if subscription.queue else str(id(subscription))
            groups.setdefault((subscription.queue, alone), []).append(subscription)
        for members in groups.values():
            member = members[0] if len(members) == 1 else self._wire.stream.choice(members)
            if self._is_severed(sender, member) or self._is_lost():
                self._note(f"bus lost {subject} to {member.bus.name}")
                continue
            message = MemoryInbound(member.bus, subject, data, reply)
            self._down(member.bus.name, member.deliver, message)
            if not reply and self._happens(self.faults.twice_share):
                self._down(member.bus.name, member.deliver, message)
        return bool(groups)

    def _listeners(self, subject: str) -> list[MemorySubscription]:
        known = self._receivers.get(subject)
        if known is None:
            known = [each for each in self._subscriptions if matches(each.subject, subject)]
            self._receivers[subject] = known
        return known

    def _is_severed(self, sender: Link, subscription: MemorySubscription) -> bool:
        return self.severed.parts(sender.server, self._links[subscription.bus.name].server)

    def _is_lost(self) -> bool:
        return self._happens(self.faults.lost_share)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._wire.stream.random() < share

    def _down(self, name: str, take: Callable[..., None], *args: object) -> None:
        link = self._links[name]
        generation = link.generation

        def come() -> None:
            if link.generation == generation and not link.is_silent:
                take(*args)

        self._wire.carry(("down", name), come)
