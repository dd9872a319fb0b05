"""A sequencer without its process: the parts over a bus and a journal, so that tests can run several in one place."""

import asyncio

import structlog

from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.journal import Journal
from penstock.runtime.process.health import Health
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from penstock_sequencer.custodian.archiver import Archiving
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.custodian.snapshotter import Snapshots, SnapshotSettings
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import halted_at_start
from penstock_sequencer.replication.hash_chain import Chain
from penstock_sequencer.replication.level_raiser import Levels
from penstock_sequencer.replication.proposer import Proposals
from penstock_sequencer.replication.read_index import ReadIndex
from penstock_sequencer.replication.replica import Outrun, Replica
from penstock_sequencer.replication.stall_detector import Stalls
from penstock_sequencer.replication.ticker import Ticker
from penstock_sequencer.serving.liveness import Members
from penstock_sequencer.serving.liveness_gossip import Heartbeats
from penstock_sequencer.serving.request_server import Api
from penstock_sequencer.storage.snapshot_format import UnknownVersion
from penstock_sequencer.storage.snapshot_store import Found, find_newest_snapshot

DESCRIBE_RETRY_S = 0.2
STORE_RETRY_S = 1.0
CATCH_UP_LOOK_S = 60.0  # how long we wait in one go; a long journal takes several

log = structlog.get_logger()


class Sequencer:
    """One replica with all that it does; `author` is unique to this life.

    Without a `store` it replays the whole journal and never becomes custodian. With a `known_level` lower than the
    newest it is as a replica of an earlier release, for tests of upgrades.
    """

    def __init__(
        self,
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
        core_limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        chain = Chain()
        members = Members()
        self._journal = journal
        self._cluster = cluster
        self._store = store
        self._metrics = metrics
        self._stalls = Stalls(bus, clock, metrics)
        self._proposals = Proposals(journal, chain, author, clock, metrics, self._stalls)
        self.replica = Replica(journal, bus, cluster, self._proposals, chain, clock, metrics, known_level, core_limits)
        self._ticker = Ticker(self.replica, self._proposals, clock, entropy, known_level)
        self._levels = Levels(bus, self.replica, self._proposals, clock, entropy, known_level)
        self.custody = Custody(self.replica, self._proposals, clock, entropy, metrics)
        if store is not None:
            keeping = (self.custody, clock, metrics, health or Health())
            self.custody.add(Archiving(journal, store, cluster, chain, *keeping).run)
            own = (journal, store, cluster, self.replica, self.custody, clock, metrics)
            self.custody.add(Snapshots(*own, snapshots, capture).run)
        self._tell_of_snapshots(metrics)
        self._heartbeats = Heartbeats(bus, cluster, members, self._levels, self.replica, self._proposals, clock)
        parts = (self.replica, ReadIndex(journal), self._proposals, members)
        self._api = Api(bus, cluster, journal, *parts, clock, metrics, self._stalls)

    async def run(self) -> None:
        """Begin with the newest snapshot, replay the journal after it, then answer, until cancelled.

        `Halted` if they do not belong together or the journal cannot be followed.
        """
        if self._store is not None:
            await self._begin(self._store)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            await self._catch_up()
            group.create_task(self._stalls.run())
            await self._heartbeats.open()
            group.create_task(self._proposals.run())
            group.create_task(self._ticker.run())
            group.create_task(self._heartbeats.run())
            group.create_task(self._levels.run())
            group.create_task(self._api.run())
            if self._store is not None:
                group.create_task(self.custody.run())

    async def until_serving(self) -> None:
        """Return when questions are answered."""
        await self._api.until_serving()

    async def drain(self) -> None:
        """Take nothing new and finish what was taken; `run` goes on meanwhile."""
        await self._heartbeats.close()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.custody.release())
            group.create_task(self._api.drain())

    async def _follow(self) -> None:
        """Follow the journal; begin again where it was purged between the choice of a snapshot and the first read."""
        while True:
            try:
                return await self.replica.run()
            except Outrun as error:
                before = self.replica.applied_sequence
                if self._store is not None:
                    await self._begin(self._store)
                if self.replica.applied_sequence == before:
                    self._metrics.halted.set(1)
                    raise error.halted from error

    async def _begin(self, store: ObjectStore) -> None:
        """Take over the newest good snapshot, if there is one; what comes before it may be gone from the journal."""
        found = await self._find_snapshot(store)
        if found.snapshot is None or found.snapshot.state.sequence <= self.replica.applied_sequence:
            log.info("no_snapshot_to_begin_with", after=self.replica.applied_sequence, damaged=len(found.damaged))
            return
        self.replica.begin_with(found.snapshot)
        log.info("begins_with_snapshot", sequence=self.replica.applied_sequence, damaged_newer=len(found.damaged))

    async def _find_snapshot(self, store: ObjectStore) -> Found:
        while True:
            try:
                return await find_newest_snapshot(store, self._cluster)
            except UnknownVersion as error:
                raise halted_at_start(error) from error
            except Unavailable as error:
                log.warning("snapshot_not_read", error=str(error))
                await asyncio.sleep(STORE_RETRY_S)

    def _tell_of_snapshots(self, metrics: SequencerMetrics) -> None:
        def sequence() -> float:
            return max(self.replica.state.custody.snapshots, default=0)

        def age_s() -> float:
            state = self.replica.state
            return (state.clock_ms - state.custody.snapshot_ms) / 1000 if state.custody.snapshot_ms else 0

        metrics.snapshot_sequence.set_function(sequence)
        metrics.snapshot_age_seconds.set_function(age_s)

    async def _catch_up(self) -> None:
        """Apply all that the journal held when we came."""
        last_sequence = await self._last_sequence()
        while True:
            try:
                await self.replica.until_applied(last_sequence, CATCH_UP_LOOK_S)
                break
            except Unavailable:
                log.info("replay_goes_on", applied=self.replica.applied_sequence, last=last_sequence)
        log.info("caught_up", sequence=last_sequence)

    async def _last_sequence(self) -> int:
        while True:
            try:
                return (await self._journal.describe()).last_sequence
            except Unavailable as error:
                log.warning("journal_not_described", error=str(error))
                await asyncio.sleep(DESCRIBE_RETRY_S)
