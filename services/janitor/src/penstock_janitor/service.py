"""One janitor without its process: its loops over a bus and a store, each at its own pace."""

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock_janitor.backoff_loop import Around, Loop
from penstock_janitor.checkpoints import Checkpoints
from penstock_janitor.config import JanitorConfig
from penstock_janitor.deletion import Deletion
from penstock_janitor.explain import Explain
from penstock_janitor.identity import Guard
from penstock_janitor.judge import Rules
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.reaper import Reaper
from penstock_janitor.retention import Retention
from penstock_janitor.store_maintenance import House
from penstock_janitor.sweep import Sweep
from penstock_janitor.task_leases import JournalTaskLeases, OwnTaskLeases, TaskLeases

# Gateways believe a plan for two minutes, and may need as long again for a fetch that goes by it.
PLAN_LIFE_MS = 240_000

log = structlog.get_logger()


class Janitor:
    """The loops of one janitor; `tell` hears what is wrong, by the loop's name."""

    def __init__(
        self,
        config: JanitorConfig,
        bus: Bus,
        store: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        metrics: JanitorMetrics,
        tell: Callable[[str, str], None],
    ) -> None:
        self._config = config
        self._entropy = entropy
        self._metrics = metrics
        self._tell = tell
        self._leaving = asyncio.Event()
        self._left = asyncio.Event()
        sequencers = SequencerClient(bus, config.cluster, clock)
        guard = Guard(store, sequencers, config.cluster)
        rules = Rules(config.grace_ms, config.orphan_age_ms)
        checkpoints = Checkpoints(config.grace_ms / 1000)
        self._explain = Explain(
            bus=bus,
            cluster=config.cluster,
            store=store,
            sequencers=sequencers,
            guard=guard,
            checkpoints=checkpoints,
            rules=rules,
            clock=clock,
        )
        self._loops = self._make_loops(store, sequencers, guard, rules, checkpoints, clock)

    def _make_loops(
        self,
        store: ObjectStore,
        sequencers: SequencerClient,
        guard: Guard,
        rules: Rules,
        checkpoints: Checkpoints,
        clock: Clock,
    ) -> list[Loop]:
        config, metrics = self._config, self._metrics
        deletion = Deletion(store, metrics, self._tell, dry_run=config.dry_run)
        tasks: TaskLeases = (
            OwnTaskLeases(sequencers)
            if config.dry_run
            else JournalTaskLeases(sequencers, config.instance, clock, config.lease_ms)
        )
        retention = Retention(
            sequencers=sequencers,
            guard=guard,
            tasks=tasks,
            clock=clock,
            metrics=metrics,
            tell=self._tell,
            interval_s=config.retention_interval_ms / 1000,
            leaving=self._leaving,
            dry_run=config.dry_run,
        )
        reaper = Reaper(
            cluster=config.cluster,
            holder=config.instance,
            sequencers=sequencers,
            guard=guard,
            deletion=deletion,
            checkpoints=checkpoints,
            rules=rules,
            clock=clock,
            entropy=self._entropy,
            metrics=metrics,
            interval_s=config.reap_interval_ms / 1000,
            lease_ms=config.lease_ms,
        )
        sweep = Sweep(
            cluster=config.cluster,
            store=store,
            sequencers=sequencers,
            guard=guard,
            tasks=tasks,
            deletion=deletion,
            rules=rules,
            clock=clock,
            metrics=metrics,
            interval_s=config.sweep_interval_ms / 1000,
            leaving=self._leaving,
        )
        house = House(
            cluster=config.cluster,
            store=store,
            guard=guard,
            tasks=tasks,
            deletion=deletion,
            rules=rules,
            clock=clock,
            metrics=metrics,
            interval_s=config.sweep_interval_ms / 1000,
        )
        steps = {"retention": retention.step, "reaper": reaper.step, "sweep": sweep.step, "house": house.step}
        around = Around(self._leaving, self._entropy, metrics, self._tell)
        return [Loop(name, step, around) for name, step in steps.items()]

    async def run(self) -> None:
        """Work until cancelled."""
        self._tell_of_settings()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._explain.run())
            async with asyncio.TaskGroup() as loops:
                for loop in self._loops:
                    loops.create_task(loop.run())
            self._left.set()  # whoever drained us says when it is over

    async def drain(self) -> None:
        """Begin nothing new, and wait for what was begun; but not for sequencers or a store that do not answer.

        What is left then is as after a death: the next janitor finishes it.
        """
        self._leaving.set()
        await self._explain.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain_deadline_ms / 2000):
                await self._left.wait()

    def _tell_of_settings(self) -> None:
        if self._config.grace_ms < PLAN_LIFE_MS:
            log.warning("grace_is_short", grace_ms=self._config.grace_ms, readers_need_ms=PLAN_LIFE_MS)
        if self._config.dry_run:
            log.info("dry_run", reason="nothing is deleted, expired or claimed")
