"""Sends produce requests to flushers: each connection uses one flusher, in order, within that flusher's window.

A connection's route moves to another flusher only when the old one has answered all its requests. A request that surely
had no effect is sent again, in order. A request that may have had one is answered OUTCOME_UNKNOWN, and ends the route.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from weakref import WeakValueDictionary

import structlog

from penstock.contracts import subjects
from penstock.contracts.codec import Buffer, decode, encode, pack
from penstock.contracts.errors import Corrupt
from penstock.contracts.messages import ConfirmReply, ConfirmRequest, FlushBatch, FlushReply, ListenerAddress, Presence
from penstock.runtime.bus.bus import Bus, Inbound, size_of
from penstock.runtime.bus.presence import Directory
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.runtime.process.shared_host import sibling_of
from penstock_gateway.kafka.broker_view import broker_weight, rendezvous_weight
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.produce.flush_packing import Message, batch_bytes_max, fits, head_of, payload_of
from penstock_gateway.produce.flusher_window import FlusherWindow, subject_of
from penstock_gateway.produce.limits import ProduceLimits
from penstock_gateway.produce.producer_route import ProducerRoute, QueuedProduce

NUMBERS_PER_MS = 256  # no gateway sends more requests

log = structlog.get_logger()


def first_number_at(now_ms: int) -> int:
    """The first number of a gateway that starts now.

    Flushers may hold requests of an earlier process with the same instance name. This one must not confirm them, so
    their numbers must be no numbers of this process.
    """
    return now_ms * NUMBERS_PER_MS


class FlushRouter:
    """All flushers as this gateway sees them, and the routes of its connections to them."""

    def __init__(
        self,
        *,
        bus: Bus,
        directory: Directory,
        sequencer: SequencerClient,
        clock: Clock,
        metrics: GatewayMetrics,
        cluster: str,
        zone: str,
        pool: str,
        instance: str,
        first_number: int,
        limits: ProduceLimits | None = None,
    ) -> None:
        """`first_number`: of the requests; see `first_number_at`."""
        self._limits = limits or ProduceLimits()
        self._bus = bus
        self._directory = directory
        self._sequencer = sequencer
        self._clock = clock
        self._metrics = metrics
        self.cluster = cluster
        self._zone = zone
        self._pool = pool
        self._instance = instance
        self.stalled: dict[ProducerRoute, None] = {}  # routes with requests that no flusher can take now
        self._windows: dict[str, FlusherWindow] = {}
        self._candidates: dict[str, Presence] | None = None  # kept until the directory changes
        self._unreachable: dict[str, float] = {}  # instance -> until when, monotonic
        self._numbers = itertools.count(first_number)
        self._route_numbers = itertools.count(1)
        self._gateway_count = 1
        self._sweep_is_wanted = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._to_confirm: WeakValueDictionary[int, QueuedProduce] = WeakValueDictionary()  # while they are in flight
        # Whether this process stood still until now: its clients may have given up what it still holds.
        self.has_stalled: Callable[[], bool] = lambda: False
        directory.subscribe(self._directory_changed)

    @property
    def is_connected(self) -> bool:
        """Whether messages can be sent now."""
        return self._bus.is_connected

    @property
    def message_bytes_max(self) -> int:
        """The largest flush message, in bytes."""
        return self._bus.message_bytes_max

    @property
    def batch_bytes_max(self) -> int:
        """The largest record batch that fits into a flush message, in bytes."""
        return batch_bytes_max(self._bus.message_bytes_max)

    @property
    def unanswered_bytes(self) -> int:
        """The bytes that all flushers have not answered yet, per-batch overhead included."""
        return sum(window.unanswered_bytes for window in self._windows.values())

    def open_route(self, on_change: Callable[[], None], key: str = "", listener: str = "") -> ProducerRoute:
        """A connection's route to a flusher, to be closed with it.

        Routes with one key choose the same flusher, also those of other gateways. It is in the process of the gateway
        that leads for this client of `listener`, if the process has one. Without a key, a route prefers a flusher in
        this process.
        """
        if key:
            return ProducerRoute(self, partial(self._choose_with_leader, key, listener), on_change)
        own_key = f"{self._instance}/{next(self._route_numbers)}"
        return ProducerRoute(self, partial(self._choose_own, own_key), on_change)

    def _choose_own(self, key: str, candidates: Mapping[str, Presence]) -> Presence:
        """A flusher in this process, which gets record bytes without a copy, or any if there is none."""
        is_local = self._bus.is_local
        own = {name: each for name, each in candidates.items() if is_local(subject_of(self.cluster, each))}
        return candidates[max(own or candidates, key=partial(rendezvous_weight, key))]

    def _choose_with_leader(self, key: str, listener: str, candidates: Mapping[str, Presence]) -> Presence:
        """The flusher with the greatest weight; one in a gateway's process has the weight of that broker.

        Clients choose their leader by these weights. So all gateways choose the flusher beside a client's leader.
        """
        gateways = {each.instance: each for each in self._directory.live("gateway")}

        def weight(name: str) -> bytes:
            gateway = gateways.get(sibling_of(name, "flusher", "gateway"))
            for address in gateway.listeners if gateway is not None else ():
                if address.name == listener:
                    return broker_weight(key, address.host, address.port)
            return rendezvous_weight(key, name)

        return candidates[max(candidates, key=weight)]

    def is_address_shared(self, address: ListenerAddress) -> bool:
        """Whether another gateway advertises the same address, too."""
        others = (each for each in self._directory.live("gateway") if each.instance != self._instance)
        return any(address in other.listeners for other in others)

    async def open(self) -> None:
        """Answer the flushers' questions whether requests may still be committed."""
        await self._bus.subscribe(subjects.confirm(self.cluster, self._instance), self._confirm)

    async def run(self) -> None:
        """Send requests, and expire old ones, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._sweep_is_wanted.wait()
                self._sweep_is_wanted.clear()
                await asyncio.sleep(self._limits.sweep_interval_s)
                self.sweep()

    def sweep(self) -> None:
        """Expire requests that waited too long, and retry those that could not be delivered."""
        now_s = self._clock.monotonic_s()
        for instance in [name for name, until_s in self._unreachable.items() if until_s <= now_s]:
            del self._unreachable[instance]
            self._candidates = None
        for route in list(self.stalled):
            route.expire(now_s)
            route.advance()
        for window in list(self._windows.values()):
            if window.outbox:
                window.expire(now_s)
        if self._unreachable or self.stalled or any(window.outbox for window in self._windows.values()):
            self.want_sweep()

    def want_sweep(self) -> None:
        """Sweep soon: a request waits, or a flusher is avoided for a while."""
        self._sweep_is_wanted.set()

    def take(
        self,
        batches: Sequence[FlushBatch],
        payload: Sequence[Buffer],
        timeout_s: float,
        route: ProducerRoute,
        *,
        needs_confirmation: bool,
    ) -> QueuedProduce:
        """A queued produce with the next number, and with a deadline."""
        if route.in_flight + 1 >= self._limits.requests_in_flight_usual:
            self._metrics.requests_at_limit.inc()
        deadline_s = self._clock.monotonic_s() + timeout_s
        produce = QueuedProduce(next(self._numbers), batches, payload, deadline_s, route)
        if needs_confirmation:
            produce.needs_confirmation = True
            self._to_confirm[produce.number] = produce
        return produce

    async def _confirm(self, inbound: Inbound) -> None:
        """Answer a flusher that is about to commit; a request that is not known any more was given up."""
        try:
            asked = decode(inbound.data, ConfirmRequest)
        except Corrupt as error:
            log.warning("confirm_request_malformed", size_bytes=len(inbound.data), error=str(error))
            return
        has_stalled, now_s = self.has_stalled(), self._clock.monotonic_s()
        leases_ms = [0 if has_stalled else self._lease_ms(number, now_s) for number in asked.requests]
        self._metrics.unconfirmed_requests.inc(leases_ms.count(0))
        await inbound.respond(encode(ConfirmReply(leases_ms)))

    def _lease_ms(self, number: int, now_s: float) -> int:
        produce = self._to_confirm.get(number)
        if produce is None or produce.route.is_over or produce.was_delivered:
            return 0
        lease_s = min(self._limits.commit_lease_s, produce.deadline_s - now_s)
        if lease_s <= 0:
            return 0
        produce.leased_until_s = now_s + lease_s
        return int(lease_s * 1000)

    def candidates(self) -> dict[str, Presence]:
        """The flushers that may take new requests: those of the gateway's pool, in its zone if there are any.

        The flushers of another pool never take them: the clients of that pool would suffer (ADR 0060).

        The client's zone does not matter: its bytes are here already, and must not cross zones again.
        """
        if self._candidates is None:
            pool = self._directory.live("flusher", pool=self._pool)
            live = [one for one in pool if one.instance not in self._unreachable]
            near = [presence for presence in live if presence.zone == self._zone]
            self._candidates = {presence.instance: presence for presence in near or live}
        return self._candidates

    def window_of(self, presence: Presence) -> FlusherWindow:
        """The window of a flusher for a connection, created on first use."""
        if presence.zone != self._zone:
            self._metrics.zone_fallbacks.inc()
        window = self._windows.get(presence.instance)
        if window is None:
            window = self._windows[presence.instance] = FlusherWindow(self, presence)
        return window

    def window_bytes(self, instance: str) -> int:
        """How many unanswered bytes this gateway may have at a flusher: its share of the flusher's budget."""
        presence = self._directory.get(instance)
        budget = presence.budget_bytes // self._gateway_count if presence else 0
        return min(budget or self._limits.window_bytes_default, self._limits.window_bytes_max)

    def start(self, sending: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run a request in this object's task group."""
        assert self._tasks is not None, "nothing is sent before run()"
        return self._tasks.create_task(sending)

    async def request(self, subject: str, zone: str, message: Message) -> FlushReply:
        """Send one message to a flusher of `zone`; wait for the reply until the last of its requests expires."""
        last_s = max(part.produce.deadline_s for part in message)
        timeout_s = max(self._limits.answer_timeout_s_min, last_s - self._clock.monotonic_s())
        data = pack(head_of(message, self._instance), payload_of(message))
        self._metrics.flush_messages.inc()
        self._metrics.flush_bytes.labels(zone).inc(size_of(data))
        reply = decode(await self._bus.request(subject, data, timeout_s), FlushReply)
        if not fits(reply, message):
            raise Corrupt(f"flush reply whose counts do not fit the {len(message)} requests it answers")
        self._sequencer.record_sequence(reply.sequence)
        return reply

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def record_unreachable(self, instance: str) -> None:
        """Avoid a flusher for a while: no process received its message."""
        self._unreachable[instance] = self._clock.monotonic_s() + self._limits.unreachable_s
        self.want_sweep()
        self._candidates = None

    def _directory_changed(self) -> None:
        self._candidates = None
        self._gateway_count = max(1, len(self._directory.live("gateway", pool=self._pool)))
        for instance in [name for name in self._windows if self._directory.get(name) is None]:
            self._windows.pop(instance).lose()
        for route in list(self.stalled):
            route.advance()
