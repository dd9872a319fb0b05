"""Builds and wires one janitor, and stops it in order."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from penstock.contracts.subjects import Sender
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock_janitor.config import JanitorConfig
from penstock_janitor.coordination.guard import Guard
from penstock_janitor.coordination.task_leases import JournalTaskLeases, OwnTaskLeases, TaskLeases
from penstock_janitor.deletion.deleter import Deleter
from penstock_janitor.deletion.maintenance import StoreMaintenance
from penstock_janitor.deletion.reaper import Reaper
from penstock_janitor.deletion.sweep import Sweep, SweepLimits
from penstock_janitor.explain import Explain
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.retention import Retention
from penstock_janitor.rules.classification import Rules
from penstock_janitor.rules.journal import Checkpoints
from penstock_janitor.service import Janitor, Loop, LoopContext, LoopLimits

ROLE = "janitor"


class JanitorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a janitor's parts that are not settings."""

    loops: LoopLimits = LoopLimits()
    sweep: SweepLimits = SweepLimits()


DEFAULT_LIMITS = JanitorLimits()


class JanitorApp:
    """One janitor process."""

    def __init__(
        self,
        config: JanitorConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        *,
        limits: JanitorLimits = DEFAULT_LIMITS,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(config, ROLE, self._clock, entropy=self._entropy)
        self._open_store = open_store
        self._limits = limits
        self._store: ObjectStore | None = None

    async def open(self) -> None:
        """Connect to everything."""
        config = self._config
        await self._host.open_http()
        self._store = await self._open_store(config.store_url, registry=self._host.registry)
        self._janitor = build_janitor(
            config=config,
            bus=await self._host.connect(),
            sequencers=self._host.sequencers(Sender.JANITOR),
            store=self._store,
            clock=self._clock,
            entropy=self._entropy,
            metrics=JanitorMetrics(self._host.registry),
            set_degraded=self._host.health.set_degraded,
            limits=self._limits,
        )
        self._host.health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._janitor.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Leave the list of instances, then finish the steps that have begun."""
        await self._host.begin_drain()
        await self._janitor.drain()

    async def close(self) -> None:
        """Close all connections."""
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._host.close_http()


def build_janitor(
    *,
    config: JanitorConfig,
    bus: Bus,
    sequencers: SequencerClient,
    store: ObjectStore,
    clock: Clock,
    entropy: Entropy,
    metrics: JanitorMetrics,
    set_degraded: Callable[[str, str], None],
    limits: JanitorLimits = DEFAULT_LIMITS,
) -> Janitor:
    """Build a janitor on a bus and a store. `set_degraded` gets the name of a part and its failure."""
    wiring = _Wiring(config, bus, sequencers, store, clock, entropy, metrics, set_degraded, limits)
    context = LoopContext(wiring.draining, entropy, metrics, set_degraded, limits.loops)
    # The names are metric labels, and the names of parts on the health page.
    steps = {
        "retention": wiring.retention().step,
        "reaper": wiring.reaper().step,
        "sweep": wiring.sweep().step,
        "house": wiring.maintenance().step,
    }
    loops = [Loop(name, step, context) for name, step in steps.items()]
    return Janitor(config=config, loops=loops, explain=wiring.explain(), draining=wiring.draining)


class _Wiring:
    """The parts that several loops share, and the loops."""

    def __init__(
        self,
        config: JanitorConfig,
        bus: Bus,
        sequencers: SequencerClient,
        store: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        metrics: JanitorMetrics,
        set_degraded: Callable[[str, str], None],
        limits: JanitorLimits,
    ) -> None:
        self._config = config
        self._bus = bus
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._set_degraded = set_degraded
        self._limits = limits
        self.draining = asyncio.Event()
        self._sequencers = sequencers
        self._guard = Guard(store, self._sequencers, config.cluster)
        self._rules = Rules(config.grace_ms, config.orphan_age_ms)
        self._checkpoints = Checkpoints(config.grace_ms / 1000)
        self._deleter = Deleter(store=store, metrics=metrics, set_degraded=set_degraded, dry_run=config.dry_run)
        self._tasks: TaskLeases = (
            OwnTaskLeases(self._sequencers)
            if config.dry_run
            else JournalTaskLeases(self._sequencers, config.instance, clock, config.lease_ms)
        )

    def retention(self) -> Retention:
        return Retention(
            sequencers=self._sequencers,
            guard=self._guard,
            tasks=self._tasks,
            clock=self._clock,
            metrics=self._metrics,
            set_degraded=self._set_degraded,
            interval_s=self._config.retention_interval_ms / 1000,
            draining=self.draining,
            dry_run=self._config.dry_run,
        )

    def reaper(self) -> Reaper:
        return Reaper(
            cluster=self._config.cluster,
            holder=self._config.instance,
            sequencers=self._sequencers,
            guard=self._guard,
            deleter=self._deleter,
            checkpoints=self._checkpoints,
            rules=self._rules,
            clock=self._clock,
            entropy=self._entropy,
            metrics=self._metrics,
            interval_s=self._config.reap_interval_ms / 1000,
            lease_ms=self._config.lease_ms,
        )

    def sweep(self) -> Sweep:
        return Sweep(
            cluster=self._config.cluster,
            store=self._store,
            sequencers=self._sequencers,
            guard=self._guard,
            tasks=self._tasks,
            deleter=self._deleter,
            rules=self._rules,
            clock=self._clock,
            metrics=self._metrics,
            interval_s=self._config.sweep_interval_ms / 1000,
            draining=self.draining,
            limits=self._limits.sweep,
        )

    def maintenance(self) -> StoreMaintenance:
        return StoreMaintenance(
            cluster=self._config.cluster,
            store=self._store,
            guard=self._guard,
            tasks=self._tasks,
            deleter=self._deleter,
            rules=self._rules,
            clock=self._clock,
            metrics=self._metrics,
            interval_s=self._config.sweep_interval_ms / 1000,
        )

    def explain(self) -> Explain:
        return Explain(
            bus=self._bus,
            cluster=self._config.cluster,
            store=self._store,
            sequencers=self._sequencers,
            guard=self._guard,
            checkpoints=self._checkpoints,
            rules=self._rules,
            clock=self._clock,
        )
