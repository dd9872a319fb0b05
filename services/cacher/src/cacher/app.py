"""Builds and wires one cacher, and stops it in order."""

import asyncio
from importlib.metadata import version

from cacher.chunks import CHUNK_BYTES, Chunk
from cacher.config import CacherConfig
from cacher.lru import LruCache
from cacher.metrics import CacherMetrics
from cacher.reads import ChunkReads
from cacher.serve import CacheServer
from penstock.contracts import subjects
from penstock.contracts.messages import Presence
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus import Bus, Subscription
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.health import Health, HttpServer, new_registry
from penstock.runtime.nats_client import NatsConnection, connect_nats
from penstock.runtime.presence import Announcer, Directory

ROLE = "cacher"


class Cacher:
    """The parts of one cacher that do its work, over a bus and a store."""

    def __init__(
        self,
        config: CacherConfig,
        bus: Bus,
        store: ObjectStore,
        directory: Directory,
        clock: Clock,
        metrics: CacherMetrics,
    ) -> None:
        self._config = config
        self._bus = bus
        self._subscription: Subscription | None = None
        cache: LruCache[Chunk] = LruCache(config.cache_bytes_max)
        self._reads = ChunkReads(
            cluster=config.cluster,
            zone=config.zone,
            bus=bus,
            store=store,
            directory=directory,
            cache=cache,
            clock=clock,
            metrics=metrics,
            loads_max=config.loads_bytes_max // CHUNK_BYTES,
        )
        self.server = CacheServer(
            reads=self._reads,
            message_bytes_max=bus.message_bytes_max,
            requests_bytes_max=config.requests_bytes_max,
            metrics=metrics,
        )

    async def open(self) -> None:
        """Take requests in."""
        subject = subjects.cache(self._config.cluster, self._config.zone, self._config.instance)
        self._subscription = await self._bus.subscribe(subject, self.server.handle)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.server.run()

    async def drain(self) -> None:
        """Answer what was already sent."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        await self.server.until_idle()
        await self._bus.flush()

    async def close(self) -> None:
        """End all tasks."""
        await self.server.close()
        await self._reads.close()


class CacherApp:
    """One cacher process."""

    def __init__(self, config: CacherConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._registry = new_registry()
        self._health = Health()
        self._http = HttpServer(self._health, self._registry, config.http_host, config.http_port)
        self._store: ObjectStore | None = None
        self._connection: NatsConnection | None = None
        self._cacher: Cacher | None = None

    async def open(self) -> None:
        """Connect to everything, and take requests in."""
        config = self._config
        await self._http.open()
        self._store = await open_store(config.store_url, registry=self._registry)
        self._connection = await connect_nats(
            config.nats_url,
            name=config.instance,
            user=config.nats_user,
            password=config.nats_password,
            registry=self._registry,
        )
        bus = self._connection.bus
        self._directory = Directory(bus, config.cluster, self._clock)
        self._announcer = Announcer(bus, config.cluster, self._presence, self._directory)
        metrics = CacherMetrics(self._registry)
        self._cacher = Cacher(config, bus, self._store, self._directory, self._clock, metrics)
        await self._directory.open()
        await self._cacher.open()
        await bus.flush()
        self._health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        assert self._connection is not None and self._cacher is not None, "run comes after open"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connection.bus.run_until_closed())
            group.create_task(self._cacher.run())
            group.create_task(self._directory.run())
            group.create_task(self._announcer.run())

    async def drain(self) -> None:
        """Say goodbye, then answer what was already asked."""
        assert self._cacher is not None, "drain comes after open"
        self._health.set_ready(False, "draining")
        await self._announcer.leave()
        await self._cacher.drain()

    async def close(self) -> None:
        """Let go of everything."""
        if self._cacher is not None:
            await self._cacher.close()
        if self._connection is not None:
            await self._connection.close()
        if self._store is not None:
            await self._store.close()
        await self._http.close()

    def _presence(self) -> Presence:
        assert self._cacher is not None, "presence comes after open"
        return Presence(
            role=ROLE,
            zone=self._config.zone,
            instance=self._config.instance,
            version=version("penstock"),
            http=self._http.address,
            load_bytes=self._cacher.server.waiting_bytes,
            budget_bytes=self._config.requests_bytes_max,
        )
