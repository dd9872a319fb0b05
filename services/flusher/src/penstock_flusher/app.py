"""Builds and wires one flusher, and stops it in order."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from penstock.contracts import subjects
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import Presence
from penstock.contracts.subjects import Sender
from penstock.objectstore import LandingFor, ObjectStore, landing_for, open_store
from penstock.runtime.bus.bus import Bus, Subscription
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock.runtime.traces.opening import open_traces
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_flusher.budget import Budget
from penstock_flusher.buffer import ActiveBuffer, BufferLimits, TokenBucket
from penstock_flusher.config import (
    EXPRESS_BYTES_MAX,
    PUTS_PER_SECOND_FREE,
    FlusherConfig,
    put_hedge_share,
    quiet_puts_per_second,
)
from penstock_flusher.confirmation import Confirmation
from penstock_flusher.flush import ATTEMPT_S, FlushLimits, FlushQueue
from penstock_flusher.fragments import Fragment
from penstock_flusher.hedged_puts import HedgedPuts, SegmentStore
from penstock_flusher.intake import Intake, Lane
from penstock_flusher.landing import Landing
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.put_latency import HedgeLimits
from penstock_flusher.reassembly import Reassembly
from penstock_flusher.recent import RecentSegments
from penstock_flusher.serve import RecentServer

ROLE = "flusher"


class FlusherLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timeouts of a flusher that are not settings."""

    commit_attempt_s: float = ATTEMPT_S
    hedging: HedgeLimits = HedgeLimits()


FLUSHER_LIMITS = FlusherLimits()


class Flusher:
    """The working parts of one flusher, over a bus and a store."""

    def __init__(
        self,
        *,
        config: FlusherConfig,
        bus: Bus,
        sequencers: SequencerClient,
        store: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        metrics: FlusherMetrics,
        limits: FlusherLimits = FLUSHER_LIMITS,
        traces: Traces = NO_TRACES,
        set_degraded: Callable[[str, str], None] = lambda _name, _reason: None,
    ) -> None:
        self._config = config
        self._bus = bus
        self._subscription: Subscription | None = None
        recent = RecentSegments(config.recent_bytes_max)
        self.budget = Budget(config.flusher_bytes_max)
        new_queue = partial(
            FlushQueue,
            cluster=config.cluster,
            zone=config.zone,
            instance=config.instance,
            sequencers=sequencers,
            recent=recent,
            confirmer=Confirmation(bus=bus, cluster=config.cluster),
            clock=clock,
            entropy=entropy,
            metrics=metrics,
            limits=FlushLimits(
                upload_parallel_max=config.upload_parallel_max,
                segment_age_max_s=config.segment_commit_age_max_ms / 1000,
                commit_bytes_max=bus.message_bytes_max // 2,
                attempt_s=limits.commit_attempt_s,
            ),
            traces=traces,
        )
        hedged = _hedged(store, config, clock, metrics, limits.hedging)
        # Puts into a landing store are not hedged. Three stores are a hedge already, and JetStream has one queue.
        landing = partial(Landing, store, set_degraded=set_degraded)
        use = landing_for(config.store_url)
        of_standard = landing() if use is LandingFor.ALL else None
        standard = Lane(
            _buffer(buffer_limits(config), quiet_puts_per_second(config)), new_queue(store=hedged, landing=of_standard)
        )
        express = None
        if use is not LandingFor.NOTHING:
            of_express = landing(bytes_per_second_max=config.express_bytes_per_second_max)
            limited = _buffer(express_limits(config), PUTS_PER_SECOND_FREE)
            express = Lane(limited, new_queue(store=store, landing=of_express))
        self.queues = [lane.flushes for lane in (standard, express) if lane is not None]
        self.intake = Intake(
            standard=standard,
            express=express,
            reassembly=Reassembly(config.part_wait_ms / 1000),
            budget=self.budget,
            clock=clock,
            metrics=metrics,
        )
        self._server = RecentServer(recent=recent, message_bytes_max=bus.message_bytes_max, metrics=metrics)

    async def open(self) -> None:
        """Subscribe to messages of gateways and cachers."""
        address = (self._config.cluster, self._config.zone, self._config.instance)
        await self._bus.subscribe(subjects.cache(*address), self._server.handle)
        self._subscription = await self._bus.subscribe(subjects.flush(*address), self.intake.handle)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for queue in self.queues:
                group.create_task(queue.run())
            group.create_task(self.intake.run())

    async def drain(self) -> None:
        """Flush and answer the messages already sent; cachers are served until the bus closes."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        await self.intake.drain()
        for queue in self.queues:
            await queue.until_idle()
        with contextlib.suppress(Unavailable):  # without a connection, no answer waits to be sent
            await self._bus.flush()


class FlusherApp:
    """One flusher process."""

    def __init__(
        self,
        config: FlusherConfig,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        limits: FlusherLimits = FLUSHER_LIMITS,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(
            config=config, role=ROLE, clock=self._clock, complete=self._complete_presence, entropy=self._entropy
        )
        self._limits = limits
        self._open_store = open_store
        self._store: ObjectStore | None = None
        self._traces: Traces = NO_TRACES
        self._flusher: Flusher | None = None

    async def open(self) -> None:
        """Connect to the store and the bus, and subscribe to messages."""
        config = self._config
        self._traces = open_traces(config, ROLE, self._clock)
        await self._host.open_http()
        health, registry = self._host.health, self._host.registry
        self._store = await self._open_store(config.store_url, registry=registry, set_degraded=health.set_degraded)
        bus = await self._host.connect()
        self._flusher = Flusher(
            config=config,
            bus=bus,
            sequencers=self._host.sequencers(Sender.FLUSHER),
            store=self._store,
            clock=self._clock,
            entropy=self._entropy,
            metrics=FlusherMetrics(registry),
            limits=self._limits,
            traces=self._traces,
            set_degraded=health.set_degraded,
        )
        await self._host.listen()
        await self._flusher.open()
        await bus.flush()
        self._host.health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        assert self._flusher is not None, "run comes after open"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flusher.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Announce that this flusher leaves, then finish the work in progress."""
        assert self._flusher is not None, "drain comes after open"
        await self._host.begin_drain()
        await self._flusher.drain()

    async def close(self) -> None:
        """Disconnect, and close the store."""
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._traces.close()
        await self._host.close_http()

    @property
    def held_bytes(self) -> int:
        """The bytes of requests that are not yet answered; 0 before `open`."""
        return self._flusher.budget.held_bytes if self._flusher is not None else 0

    def _complete_presence(self, presence: Presence) -> Presence:
        budget_bytes = self._config.flusher_bytes_max
        return msgspec.structs.replace(
            presence, pool=self._config.pool, load_bytes=self.held_bytes, budget_bytes=budget_bytes
        )


def _hedged(
    store: ObjectStore, config: FlusherConfig, clock: Clock, metrics: FlusherMetrics, limits: HedgeLimits
) -> SegmentStore:
    share = put_hedge_share(config)
    if not share:
        return store
    return HedgedPuts(store=store, share=share, clock=clock, metrics=metrics, limits=limits)


def buffer_limits(config: FlusherConfig) -> BufferLimits:
    """The conditions that close a buffer of the standard lane."""
    return BufferLimits(
        bytes_max=config.flush_bytes_max,
        batches_max=config.flush_batches_max,
        interval_s=config.flush_interval_ms / 1000,
        quiet_s=config.flush_quiet_ms / 1000,
        quiet_under_way_max=config.quiet_under_way_max,
    )


def express_limits(config: FlusherConfig) -> BufferLimits:
    """The same for the express lane, whose segments are small, and whose store answers soon."""
    return msgspec.structs.replace(
        buffer_limits(config), bytes_max=EXPRESS_BYTES_MAX, interval_s=config.express_interval_ms / 1000
    )


def _buffer(limits: BufferLimits, quiet_per_second: float) -> ActiveBuffer[Fragment]:
    return ActiveBuffer(limits=limits, quiet_tokens=TokenBucket(quiet_per_second))
