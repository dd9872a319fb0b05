"""Builds a sequencer from its parts and leads it through its life."""

import asyncio
from importlib.metadata import version

import structlog

from penstock.contracts.messages import Presence
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.health import Health, HttpServer, new_registry
from penstock.runtime.nats_client import NatsConnection, connect_nats
from penstock.runtime.presence import Announcer
from sequencer.config import SequencerConfig
from sequencer.garbage import collect_new_for_ever, stop_full_collections
from sequencer.identity import open_own_journal
from sequencer.metrics import SequencerMetrics
from sequencer.service import Sequencer

ROLE = "sequencer"
LIFE_ENTROPY_BYTES = 6  # makes the author of entries unique to one life, also when the instance's name is given

log = structlog.get_logger()


class SequencerApp:
    """One sequencer process."""

    def __init__(self, config: SequencerConfig, clock: Clock | None = None, entropy: Entropy | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._registry = new_registry()
        self._health = Health()
        self._http = HttpServer(self._health, self._registry, config.http_host, config.http_port)
        self._store: ObjectStore | None = None
        self._connection: NatsConnection | None = None
        self._sequencer: Sequencer | None = None
        self._announcer: Announcer | None = None

    async def open(self) -> None:
        """Listen for health checks, connect, and find this cluster's journal."""
        config = self._config
        stop_full_collections()
        await self._http.open()
        self._connection = await connect_nats(
            config.nats_url,
            name=config.instance,
            user=config.nats_user,
            password=config.nats_password,
            registry=self._registry,
            entropy=self._entropy,
        )
        self._store = await open_store(config.store_url, registry=self._registry, now_ms=self._clock.now_ms)
        journal = await open_own_journal(self._connection, self._store, config.cluster, config.journal_replicas)
        bus = self._connection.bus
        self._announcer = Announcer(bus, config.cluster, self._presence)
        author = f"{config.instance}.{self._entropy.take(LIFE_ENTROPY_BYTES).hex()}"
        metrics = SequencerMetrics(self._registry)
        self._sequencer = Sequencer(journal, bus, config.cluster, author, self._clock, self._entropy, metrics)

    async def run(self) -> None:
        """Follow the journal, and answer once caught up, until cancelled."""
        assert self._connection is not None and self._announcer is not None, "run comes after open"
        assert self._sequencer is not None, "run comes after open"
        self._health.set_ready(False, "replaying the journal")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connection.bus.run_until_closed())
            group.create_task(self._announcer.run())
            group.create_task(self._sequencer.run())
            await self._sequencer.until_serving()
            self._health.set_ready(True)
            await self._announcer.announce()
            group.create_task(collect_new_for_ever())

    async def drain(self) -> None:
        """Take nothing new and finish what was taken."""
        self._health.set_ready(False, "draining")
        if self._announcer is not None:
            await self._announcer.leave()
        if self._sequencer is not None:
            await self._sequencer.drain()

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()
        if self._store is not None:
            await self._store.close()
        await self._http.close()

    def _presence(self) -> Presence:
        config = self._config
        return Presence(ROLE, config.zone, config.instance, version("penstock-sequencer"), http=self._http.address)
