"""A sequencer without its process: the parts over a bus and a journal, so that tests can run several in one process."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.messages import ClusterUse
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.journal import Journal
from penstock.runtime.process.health import Health
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.custodian.archiver import Archiver
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.custodian.snapshot_schedule import SnapshotSettings
from penstock_sequencer.custodian.snapshotter import Snapshotter
from penstock_sequencer.limits import SEQUENCER_LIMITS, SequencerLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import halted_at_start
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.replication.level_raiser import LevelRaiser
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.read_index import ReadIndex
from penstock_sequencer.replication.replica import Apply, Outrun, Replica
from penstock_sequencer.replication.seen_entries import SeenEntries
from penstock_sequencer.replication.stall_detector import StallDetector
from penstock_sequencer.replication.ticker import Ticker
from penstock_sequencer.serving.cluster_quotas import ReadQuotas, cluster_use, no_quotas
from penstock_sequencer.serving.liveness_gossip import LivenessGossip
from penstock_sequencer.serving.member_liveness import MemberLiveness
from penstock_sequencer.serving.request_server import RequestServer
from penstock_sequencer.serving.table_watch import TableWatch
from penstock_sequencer.storage.lost_entry import write_lost_entry
from penstock_sequencer.storage.snapshot_format import UnknownVersion
from penstock_sequencer.storage.snapshot_store import Found, find_newest_snapshot

log = structlog.get_logger()


async def no_answers() -> None:
    """Return at once."""


class Sequencer:
    """One replica with all its parts; `author` is unique to this instance.

    Without a `store` it replays the whole journal and never becomes custodian. With a `known_level` below the newest it
    behaves like a replica of an earlier release, for tests of upgrades. `until_answered` returns when live services had
    the time to name the entries that they have seen (`record_seen`).
    """

    def __init__(
        self,
        *,
        journal: Journal,
        bus: Bus,
        cluster: str,
        author: str,
        clock: Clock,
        entropy: Entropy,
        metrics: SequencerMetrics,
        store: ObjectStore | None = None,
        snapshots: SnapshotSettings | None = None,
        capture: Capture = capture_inline,
        known_level: int = NEWEST_LEVEL,
        health: Health | None = None,
        apply: Apply = apply_entry,
        limits: SequencerLimits = SEQUENCER_LIMITS,
        make_request_server: Callable[..., RequestServer] = RequestServer,
        traces: Traces = NO_TRACES,
        quotas: ReadQuotas = no_quotas,
        until_answered: Callable[[], Coroutine[Any, Any, object]] = no_answers,
    ) -> None:
        self._until_answered = until_answered
        self._quotas = quotas
        self._traces = traces
        self._journal = journal
        self._bus = bus
        self._cluster = cluster
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._store = store
        self._known_level = known_level
        self._limits = limits
        self._chain = HashChain()
        self._build_replication(author, apply)
        health = health or Health()
        self._build_serving(make_request_server, health)
        self._build_custodian(snapshots, capture, health)
        self._report_snapshots()
        metrics.stored_bytes.set_function(lambda: self.cluster_use().stored_bytes)
        metrics.stored_bytes_quota.set_function(lambda: self.cluster_use().stored_bytes_max)

    def cluster_use(self) -> ClusterUse:
        """The quotas of the cluster that gateways enforce, and its use."""
        return cluster_use(self.replica.state, self._quotas())

    def _build_replication(self, author: str, apply: Apply) -> None:
        limits = self._limits.replication
        self._stalls = StallDetector(bus=self._bus, clock=self._clock, metrics=self._metrics, limits=limits.stalls)
        self.proposer = Proposer(
            journal=self._journal,
            chain=self._chain,
            author=author,
            clock=self._clock,
            metrics=self._metrics,
            stalls=self._stalls,
            limits=limits.proposer,
            traces=self._traces,
        )
        self.replica = Replica(
            journal=self._journal,
            bus=self._bus,
            cluster=self._cluster,
            proposer=self.proposer,
            chain=self._chain,
            clock=self._clock,
            metrics=self._metrics,
            known_level=self._known_level,
            apply=apply,
            limits=limits.replica,
            core_limits=self._limits.core,
        )
        self._ticker = Ticker(
            replica=self.replica,
            proposer=self.proposer,
            clock=self._clock,
            entropy=self._entropy,
            known_level=self._known_level,
            limits=limits.ticker,
        )
        self._levels = LevelRaiser(
            bus=self._bus,
            replica=self.replica,
            proposer=self.proposer,
            clock=self._clock,
            entropy=self._entropy,
            known=self._known_level,
            limits=limits.levels,
        )

    def _build_serving(self, make_request_server: Callable[..., RequestServer], health: Health) -> None:
        limits = self._limits.serving
        self._tables = TableWatch(replica=self.replica, metrics=self._metrics, health=health, limits=limits.tables)
        members = MemberLiveness(limits.liveness)
        self._gossip = LivenessGossip(
            bus=self._bus,
            cluster=self._cluster,
            members=members,
            levels=self._levels,
            replica=self.replica,
            proposer=self.proposer,
            clock=self._clock,
            limits=limits.liveness,
        )
        read_index = ReadIndex(self._journal)
        self._seen = SeenEntries(
            journal=self._journal,
            replica=self.replica,
            proposer=self.proposer,
            read_index=read_index,
            record_lost=self._record_lost,
            limits=self._limits.replication.seen,
        )
        self._server = make_request_server(
            bus=self._bus,
            cluster=self._cluster,
            journal=self._journal,
            replica=self.replica,
            read_index=read_index,
            proposer=self.proposer,
            members=members,
            clock=self._clock,
            metrics=self._metrics,
            stalls=self._stalls,
            seen=self._seen,
            quotas=self._quotas,
            limits=limits.requests,
        )

    def _build_custodian(self, snapshots: SnapshotSettings | None, capture: Capture, health: Health) -> None:
        limits = self._limits.custodian
        self.custody = Custody(
            replica=self.replica,
            proposer=self.proposer,
            clock=self._clock,
            entropy=self._entropy,
            metrics=self._metrics,
            limits=limits.custody,
        )
        if self._store is None:
            return
        archiver = Archiver(
            journal=self._journal,
            store=self._store,
            cluster=self._cluster,
            chain=self._chain,
            custody=self.custody,
            clock=self._clock,
            metrics=self._metrics,
            health=health,
            known_level=self._known_level,
            limits=limits.archive,
        )
        snapshotter = Snapshotter(
            journal=self._journal,
            store=self._store,
            cluster=self._cluster,
            replica=self.replica,
            custody=self.custody,
            clock=self._clock,
            metrics=self._metrics,
            settings=snapshots,
            capture=capture,
            known_level=self._known_level,
            limits=limits.snapshots,
        )
        self.custody.add(archiver.run)
        self.custody.add(snapshotter.run)

    def _report_snapshots(self) -> None:
        def sequence() -> float:
            return max(self.replica.state.custody.snapshots, default=0)

        def age_s() -> float:
            state = self.replica.state
            return (state.clock_ms - state.custody.snapshot_ms) / 1000 if state.custody.snapshot_ms else 0

        self._metrics.snapshot_sequence.set_function(sequence)
        self._metrics.snapshot_age_seconds.set_function(age_s)

    async def run(self) -> None:
        """Load the newest snapshot, replay the journal after it, then answer, until cancelled.

        Nothing is written or answered before all entries are found that live services have seen.
        `Halted` if the two do not belong together or the journal cannot be followed.
        """
        if self._store is not None:
            await self._load_snapshot(self._store)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._seen.run())
            answering = group.create_task(self._until_answered())
            await self._catch_up()
            await answering
            await self._seen.until_recorded_applied()
            group.create_task(self._stalls.run())
            await self._gossip.open()
            group.create_task(self.proposer.run())
            group.create_task(self._ticker.run())
            group.create_task(self._gossip.run())
            group.create_task(self._levels.run())
            group.create_task(self._tables.run())
            group.create_task(self._server.run())
            if self._store is not None:
                group.create_task(self.custody.run())

    def record_seen(self, sequence: int) -> None:
        """Record a journal entry that another service has seen; `run` halts if the journal has lost it."""
        self._seen.record(sequence)

    async def _record_lost(self, sequence: int) -> None:
        if self._store is not None:
            await write_lost_entry(self._store, self._cluster, sequence)

    async def until_serving(self) -> None:
        """Return when queries are answered."""
        await self._server.until_serving()

    async def drain(self) -> None:
        """Accept nothing new and finish accepted requests, while `run` continues."""
        await self._gossip.close()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.custody.release())
            group.create_task(self._server.drain())

    async def _follow(self) -> None:
        """Follow the journal; load a newer snapshot if the journal was purged before the first read."""
        while True:
            try:
                return await self.replica.run()
            except Outrun as error:
                if self._store is None or not await self._load_newer_snapshot(self._store):
                    self._metrics.halted.set(1)
                    raise error.halted from error

    async def _load_newer_snapshot(self, store: ObjectStore) -> bool:
        """Whether a newer snapshot was found in time: a store may list a new object late."""
        before = self.replica.applied_sequence
        end_s = self._clock.monotonic_s() + self._limits.start.snapshot_look_s
        while True:
            await self._load_snapshot(store)
            if self.replica.applied_sequence > before:
                return True
            if self._clock.monotonic_s() >= end_s:
                return False
            await asyncio.sleep(self._limits.start.store_retry_s)

    async def _load_snapshot(self, store: ObjectStore) -> None:
        """Start from the newest good snapshot, if there is one; the journal may lack earlier entries."""
        found = await self._find_snapshot(store)
        if found.snapshot is None or found.snapshot.state.sequence <= self.replica.applied_sequence:
            log.info("no_newer_snapshot", applied=self.replica.applied_sequence, damaged=len(found.damaged))
            return
        self.replica.start_from(found.snapshot)
        log.info("snapshot_loaded", sequence=self.replica.applied_sequence, damaged_newer=len(found.damaged))

    async def _find_snapshot(self, store: ObjectStore) -> Found:
        while True:
            try:
                return await find_newest_snapshot(store, self._cluster, known_level=self._known_level)
            except UnknownVersion as error:
                raise halted_at_start(error) from error
            except Unavailable as error:
                log.warning("snapshot_not_read", error=str(error))
                await asyncio.sleep(self._limits.start.store_retry_s)

    async def _catch_up(self) -> None:
        """Apply all entries that the journal had when this replica started."""
        last_sequence = await self._last_sequence()
        while True:
            try:
                await self.replica.until_applied(last_sequence, self._limits.start.catch_up_look_s)
                break
            except Unavailable:
                log.info("replay_not_finished", applied=self.replica.applied_sequence, last=last_sequence)
        log.info("caught_up", sequence=last_sequence)

    async def _last_sequence(self) -> int:
        while True:
            try:
                return (await self._journal.describe()).last_sequence
            except Unavailable as error:
                log.warning("journal_not_described", error=str(error))
                await asyncio.sleep(self._limits.start.describe_retry_s)
