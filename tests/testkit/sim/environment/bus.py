"""A bus with the guarantees of core NATS and all their faults: late, lost, duplicate, cut, silent, partitioned.

Each connection belongs to one of several servers. A message travels up to its server, is routed there, and travels
down to each receiver. Both ways keep the order. A cut loses all messages on their way, in both directions. A silent
connection looks healthy and carries nothing. Severed servers exchange nothing, and notice it after a while.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import crc32c

from penstock.contracts.errors import Unavailable
from tests.testkit.fakes.answers import within
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub, MemoryInbound, MemorySubscription, Nothing, matches
from tests.testkit.sim.environment.wire import Wire

FLUSH_TIMEOUT_S = 5.0  # as in the real bus
SERVERS = 3

Record = Callable[[str], None]


@dataclass
class BusFaults:
    """The faults of single messages, as shares of all messages."""

    lost_share: float = 0.0  # on the way to one receiver
    twice_share: float = 0.0  # only of published messages and answers, which every receiver must accept twice
    late_share: float = 0.0  # on the way to one receiver; later messages to it wait, too
    late_s_max: float = 0.0


@dataclass
class Link:
    """One connection."""

    server: int
    up: tuple[str, str]  # the lanes to its server and from it
    down: tuple[str, str]
    generation: int = 0  # of the connection; messages of an earlier one never arrive
    is_mute: bool = False  # carries nothing to the server
    is_deaf: bool = False  # carries nothing from the server

    @property
    def is_silent(self) -> bool:
        """Whether a round trip is impossible."""
        return self.is_mute or self.is_deaf


@dataclass
class Severed:
    """Pairs of servers that do not reach each other."""

    pairs: set[tuple[int, int]] = field(default_factory=set)
    is_noticed: bool = False

    def separates(self, one: int, other: int) -> bool:
        """Whether the two servers are severed."""
        return bool(self.pairs) and (min(one, other), max(one, other)) in self.pairs


NEIGHBOUR_INBOX = "_INBOX.neighbour."


class SimHub(MemoryHub):
    """All servers and connections of one bus."""

    def __init__(self, wire: Wire, record: Record = lambda _: None) -> None:
        super().__init__()
        self.faults = BusFaults()
        self.severed = Severed()
        self.happened: Counter[str] = Counter()  # faults of single messages
        self.on_answer: Callable[[str, bytes], None] = lambda sender, data: None
        self.on_send: Callable[[str, str], None] = lambda sender, subject: None
        self._wire = wire
        self._record = record
        self._links: dict[str, Link] = {}
        self._receivers: dict[str, list[list[MemorySubscription]]] = {}  # by subject; one of each group gets a message

    def connect(self, name: str, server: int = 0) -> MemoryBus:
        """A new connection to a server."""
        self._links[name] = Link(server, ("up", name), ("down", name))
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
        """Connect again, if the process still runs."""
        if name in self._buses:
            self._links[name].is_mute = self._links[name].is_deaf = False
            self._buses[name].mend()

    def silence(self, name: str, *, up: bool = True, down: bool = True) -> None:
        """Carry nothing to the server of a connection, or nothing from it, without an error."""
        if name in self._links:
            self._links[name].is_mute, self._links[name].is_deaf = up, down

    def kill(self, name: str) -> None:
        if name in self._buses:
            self._links[name].generation += 1
            super().kill(name)

    def reaches(self, name: str, server: int) -> bool:
        """Whether the messages of a connection arrive at a server."""
        link, bus = self._links[name], self._buses.get(name)
        return (
            bus is not None
            and bus.is_connected
            and not link.is_silent
            and not self.severed.separates(link.server, server)
        )

    def generation(self, name: str) -> int:
        """A number that changes when the connection breaks."""
        return self._links[name].generation

    def send(self, sender: MemoryBus, subject: str, data: bytes, reply: str) -> None:
        link = self._links[sender.name]
        if not link.is_mute:
            self._wire.carry(link.up, self._arrive, sender, link.generation, subject, data, reply)

    async def echo(self, bus: MemoryBus, at_server: Callable[[], None] = lambda: None) -> None:
        link = self._links[bus.name]
        done = asyncio.get_running_loop().create_future()

        def came_back(generation: int) -> None:
            if generation == link.generation and not link.is_silent and not done.done():
                done.set_result(None)

        def arrived(generation: int) -> None:
            at_server()
            self._wire.carry(link.down, came_back, generation)

        self._wire.carry(link.up, arrived, link.generation)
        try:
            await within(FLUSH_TIMEOUT_S, done)
        except TimeoutError as error:
            raise Unavailable("the nats servers do not answer") from error

    async def withdraw(self, subscription: MemorySubscription) -> None:
        with contextlib.suppress(Unavailable):
            await self.echo(subscription.bus, lambda: self.remove(subscription))
        self.remove(subscription)

    def _arrive(self, sender: MemoryBus, generation: int, subject: str, data: bytes, reply: str) -> None:
        link = self._links[sender.name]
        if link.generation != generation or link.is_mute:
            return
        self._record(f"bus {sender.name} > {subject} {len(data)} {crc32c.crc32c(data):08x}")
        self.on_send(sender.name, subject)
        if subject.startswith("_INBOX."):
            if not subject.startswith(NEIGHBOUR_INBOX):  # `on_answer` knows one cluster only
                self.on_answer(sender.name, data)
            self._answer(link, subject, data)
        elif not self._deliver(link, subject, data, reply) and reply:
            self._down(link, sender.take_answer, reply, Nothing.NO_SUBSCRIBER)

    def _answer(self, sender: Link, subject: str, data: bytes) -> None:
        bus = self._buses.get(subject.split(".")[1])
        if bus is None or not bus.is_connected or self._is_lost():
            return
        link = self._links[bus.name]
        if not self.severed.separates(sender.server, link.server):
            self._down(link, bus.take_answer, subject, data)
            if self._happens(self.faults.twice_share):
                self.happened["answers repeated"] += 1
                self._down(link, bus.take_answer, subject, data)

    def _deliver(self, sender: Link, subject: str, data: bytes, reply: str) -> bool:
        """Send a message to all matching subscriptions; whether there was one."""
        has_receiver = False
        severed, stream = self.severed, self._wire.stream
        lost_share, twice_share = self.faults.lost_share, self.faults.twice_share
        for group in self._groups(subject):
            members = [each for each in group if each.bus.is_connected]
            if severed.is_noticed:
                members = [each for each in members if not self._is_severed(sender, each)]
            if not members:
                continue
            has_receiver = True
            member = members[0] if len(members) == 1 else stream.choice(members)
            is_lost = lost_share > 0 and stream.random() < lost_share
            if is_lost or (severed.pairs and self._is_severed(sender, member)):
                self.happened["messages lost"] += 1
                self._record(f"bus lost {subject} to {member.bus.name}")
                continue
            link = self._links[member.bus.name]
            message = MemoryInbound(member.bus, subject, data, reply)
            self._down(link, member.deliver, message)
            if twice_share > 0 and not reply and stream.random() < twice_share:
                self.happened["messages repeated"] += 1
                self._down(link, member.deliver, message)
        return has_receiver

    def _groups(self, subject: str) -> list[list[MemorySubscription]]:
        """The subscriptions of a subject: queue groups, and a group of one for each without a queue."""
        known = self._receivers.get(subject)
        if known is None:
            groups: dict[tuple[str, int], list[MemorySubscription]] = {}
            for place, each in enumerate(self._subscriptions):
                if matches(each.subject, subject):
                    groups.setdefault((each.queue, 0 if each.queue else place), []).append(each)
            known = self._receivers[subject] = list(groups.values())
        return known

    def _is_severed(self, sender: Link, subscription: MemorySubscription) -> bool:
        return self.severed.separates(sender.server, self._links[subscription.bus.name].server)

    def _is_lost(self) -> bool:
        return self._happens(self.faults.lost_share)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._wire.stream.random() < share

    def _down(self, link: Link, take: Callable[..., None], *args: object) -> None:
        late_s = 0.0
        if self._happens(self.faults.late_share):
            self.happened["messages late"] += 1
            late_s = self._wire.stream.uniform(0, self.faults.late_s_max)
        self._wire.carry(link.down, _arrive_at_client, link, link.generation, take, args, late_s=late_s)


def _arrive_at_client(link: Link, generation: int, take: Callable[..., None], args: tuple[object, ...]) -> None:
    if link.generation == generation and not link.is_deaf:
        take(*args)
