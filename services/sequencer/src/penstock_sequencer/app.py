"""Builds a sequencer from its parts and leads it through its life."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.contracts.levels import NEWEST_LEVEL
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.custodian.archiver import check_journal_has_what_is_archived
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.custodian.snapshotter import SnapshotSettings
from penstock_sequencer.garbage import collect_new_for_ever, stop_full_collections
from penstock_sequencer.journal_guard.durability import JournalSafety
from penstock_sequencer.journal_guard.identity import open_own_journal
from penstock_sequencer.journal_guard.identity_watch import IdentityWatch
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.service import Sequencer

LIFE_ENTROPY_BYTES = 6  # makes the author of entries unique to one life, also when the instance's name is given


class SequencerApp:
    """One sequencer process."""

    def __init__(
        self,
        config: SequencerConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        capture: Capture = capture_inline,
        known_level: int = NEWEST_LEVEL,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(
            config, "sequencer", self._clock, entropy=self._entropy, distribution="penstock-sequencer"
        )
        self._safety = JournalSafety(config, self._host.health)
        self._open_store = open_store
        self._capture = capture
        self._known_level = known_level
        self._store: ObjectStore | None = None
        self._sequencer: Sequencer | None = None
        self._identity_watch: IdentityWatch | None = None

    @property
    def sequencer(self) -> Sequencer | None:
        """The sequencer itself, None until `open` has found the journal."""
        return self._sequencer

    async def open(self) -> None:
        """Listen for health checks, connect, and find this cluster's journal."""
        config = self._config
        stop_full_collections()
        await self._host.open_http()
        bus = await self._host.connect()
        await self._safety.check_servers()
        registry = self._host.registry
        self._store = await self._open_store(config.store_url, registry=registry, now_ms=self._clock.now_ms)
        journals = self._safety.opener(self._host.connection)
        journal = await open_own_journal(journals, self._store, config.cluster, config.journal_replicas)
        await self._safety.check_copies(journal)
        await check_journal_has_what_is_archived(journal, self._store, config.cluster)
        self._identity_watch = IdentityWatch(self._store, config.cluster, journal)
        author = f"{config.instance}.{self._entropy.take(LIFE_ENTROPY_BYTES).hex()}"
        metrics = SequencerMetrics(registry)
        snapshots = SnapshotSettings(config.snapshot_entries, config.snapshot_interval_ms)
        surroundings = (self._clock, self._entropy, metrics, self._store)
        own = (snapshots, self._capture, self._known_level, self._host.health)
        self._sequencer = Sequencer(journal, bus, config.cluster, author, *surroundings, *own)

    async def run(self) -> None:
        """Follow the journal, and answer once caught up, until cancelled."""
        assert self._sequencer is not None and self._identity_watch is not None, "run comes after open"
        self._host.health.set_ready(False, "replaying the journal")
        async with asyncio.TaskGroup() as group:
            self._host.start(group)
            group.create_task(self._sequencer.run())
            group.create_task(self._safety.run())
            group.create_task(self._identity_watch.run())
            await self._sequencer.until_serving()
            self._host.health.set_ready(True)
            await self._host.announcer.announce()
            group.create_task(collect_new_for_ever())

    async def drain(self) -> None:
        """Take nothing new and finish what was taken."""
        await self._host.begin_drain()
        if self._sequencer is not None:
            await self._sequencer.drain()

    async def close(self) -> None:
        """Disconnect."""
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._host.close_http()
