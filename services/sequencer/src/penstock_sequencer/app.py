"""Builds and wires one sequencer process, and runs it from start to stop."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.messages import Presence
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.garbage import GarbagePolicy, LargeStatePolicy
from penstock.runtime.process.host import ServiceHost
from penstock.runtime.traces.opening import open_traces
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.custodian.snapshot_schedule import SnapshotSettings
from penstock_sequencer.journal_guard.completeness import check_journal_has_what_is_archived
from penstock_sequencer.journal_guard.durability import JournalSafety
from penstock_sequencer.journal_guard.identity import IdentityWatch, OwnJournal, open_own_journal
from penstock_sequencer.limits import SEQUENCER_LIMITS, SequencerLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.replica import Apply
from penstock_sequencer.service import Sequencer, no_answers
from penstock_sequencer.serving.cluster_quotas import ReadQuotas, no_quotas

LIFE_ENTROPY_BYTES = 6  # makes the author of entries unique to one instance, even if its name is configured


class SequencerApp:
    """One sequencer process.

    A simulation passes other keyword parameters: a clock, a host, a store, an `apply` of the state machine, a garbage
    policy. `quotas` returns the present quotas of the cluster. `admit` raises `Fenced` if the cluster is deleted.
    """

    def __init__(
        self,
        config: SequencerConfig,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        capture: Capture = capture_inline,
        known_level: int = NEWEST_LEVEL,
        apply: Apply = apply_entry,
        garbage: GarbagePolicy | None = None,
        quotas: ReadQuotas = no_quotas,
        admit: Callable[[], Awaitable[None]] | None = None,
        limits: SequencerLimits = SEQUENCER_LIMITS,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(
            config=config,
            role="sequencer",
            clock=self._clock,
            entropy=self._entropy,
            complete=self._complete_presence,
        )
        self._limits = limits
        guard = limits.journal_guard
        self._safety = JournalSafety(config=config, health=self._host.health, limits=guard.durability)
        self._open_store = open_store
        self._capture = capture
        self._known_level = known_level
        self._apply = apply
        self._quotas = quotas
        self._admit = admit
        self._garbage = garbage or LargeStatePolicy()
        self._store: ObjectStore | None = None
        self._traces: Traces = NO_TRACES
        self._sequencer: Sequencer | None = None
        self._is_serving = False
        self._identity_watch: IdentityWatch | None = None

    @property
    def sequencer(self) -> Sequencer | None:
        """The sequencer itself; None until `open` has found the journal."""
        return self._sequencer

    async def open(self) -> None:
        """Answer health checks, connect, and find this cluster's journal."""
        config, guard = self._config, self._limits.journal_guard
        self._garbage.start()
        self._traces = open_traces(config, "sequencer", self._clock)
        await self._host.open_http()
        bus = await self._host.connect()
        await self._safety.check_servers()  # before any store is touched
        if self._admit is not None:
            await self._admit()
        registry = self._host.registry
        self._store = await self._open_store(config.store_url, registry=registry, clock=self._clock)
        journals = self._safety.opener(self._host.connection)
        own = await open_own_journal(
            journals=journals, store=self._store, cluster=config.cluster, replicas=config.journal_replicas
        )
        journal = own.journal
        await self._safety.check_copies(journal)
        await check_journal_has_what_is_archived(
            journal=journal, store=self._store, cluster=config.cluster, look_interval_s=guard.loss_look_s
        )
        self._identity_watch = IdentityWatch(
            store=self._store,
            cluster=config.cluster,
            journal=journal,
            set_degraded=self._host.health.set_degraded,
            interval_s=guard.marker_interval_s,
        )
        self._sequencer = self._replica_of(own, bus, self._store)
        self._host.directory.on_announcement(self._record_seen)
        await self._host.listen(may_be_denied=True)  # by the settings of earlier releases

    def _record_seen(self, presence: Presence) -> None:
        if self._sequencer is not None:
            self._sequencer.record_seen(presence.seen_sequence)

    def _complete_presence(self, presence: Presence) -> Presence:
        """Add the position in the journal, and the use of the cluster. A replica that replays knows an old use."""
        if self._sequencer is None:
            return presence
        state = self._sequencer.replica.state
        return msgspec.structs.replace(
            presence,
            journal_sequence=state.sequence,
            journal_ms=state.clock_ms,
            cluster_use=self._sequencer.cluster_use() if self._is_serving else None,
        )

    def _replica_of(self, own: OwnJournal, bus: Bus, store: ObjectStore) -> Sequencer:
        config = self._config
        return Sequencer(
            journal=own.journal,
            bus=bus,
            cluster=config.cluster,
            author=f"{config.instance}.{self._entropy.take(LIFE_ENTROPY_BYTES).hex()}",
            clock=self._clock,
            entropy=self._entropy,
            metrics=SequencerMetrics(self._host.registry),
            store=store,
            snapshots=SnapshotSettings(entries=config.snapshot_entries, interval_ms=config.snapshot_interval_ms),
            capture=self._capture,
            known_level=self._known_level,
            health=self._host.health,
            apply=self._apply,
            limits=self._limits,
            traces=self._traces,
            quotas=self._quotas,
            until_answered=no_answers if own.is_new else self._host.announcer.until_answered,
        )

    async def run(self) -> None:
        """Follow the journal, and answer requests after the catch-up, until cancelled."""
        assert self._sequencer is not None and self._identity_watch is not None, "run comes after open"
        self._host.health.set_ready(False, "replaying the journal")
        async with asyncio.TaskGroup() as group:
            self._host.start(group)
            group.create_task(self._sequencer.run())
            group.create_task(self._safety.run())
            group.create_task(self._identity_watch.run())
            await self._sequencer.until_serving()
            self._is_serving = True
            self._host.health.set_ready(True)
            await self._host.announcer.announce()
            group.create_task(self._garbage.run())

    async def drain(self) -> None:
        """Accept nothing new and finish accepted requests."""
        await self._host.begin_drain()
        if self._sequencer is not None:
            await self._sequencer.drain()

    async def close(self) -> None:
        """Disconnect."""
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._traces.close()
        await self._host.close_http()
