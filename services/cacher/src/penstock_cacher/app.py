"""Builds and wires one cacher, and stops it in order."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from penstock.contracts import subjects
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import Presence
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.bus import Bus, Subscription
from penstock.runtime.bus.presence import Directory
from penstock.runtime.clock import Clock, Entropy, SystemClock
from penstock.runtime.process.host import ServiceHost
from penstock.runtime.traces.opening import open_traces
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_cacher.chunk_cache import ChunkCache
from penstock_cacher.config import CacherConfig
from penstock_cacher.metrics import CacherMetrics
from penstock_cacher.reads import ChunkReads, ReadLimits
from penstock_cacher.serve import CacheServer, ServeLimits

ROLE = "cacher"


class CacherLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timeouts of a cacher that are not settings."""

    reads: ReadLimits = ReadLimits()
    serve: ServeLimits = ServeLimits()


CACHER_LIMITS = CacherLimits()


class Cacher:
    """The working parts of one cacher, over a bus and a store."""

    def __init__(
        self,
        *,
        config: CacherConfig,
        bus: Bus,
        store: ObjectStore,
        directory: Directory,
        clock: Clock,
        metrics: CacherMetrics,
        limits: CacherLimits = CACHER_LIMITS,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._config = config
        self._bus = bus
        self._subscription: Subscription | None = None
        self._reads = ChunkReads(
            cluster=config.cluster,
            zone=config.zone,
            pool=config.pool,
            bus=bus,
            store=store,
            directory=directory,
            cache=ChunkCache(config.cache_bytes_max),
            clock=clock,
            metrics=metrics,
            loads_bytes_max=config.loads_bytes_max,
            limits=limits.reads,
            traces=traces,
        )
        self.server = CacheServer(
            reads=self._reads,
            message_bytes_max=bus.message_bytes_max,
            requests_bytes_max=config.requests_bytes_max,
            metrics=metrics,
            limits=limits.serve,
        )

    async def open(self) -> None:
        """Subscribe to requests."""
        subject = subjects.cache(self._config.cluster, self._config.zone, self._config.instance)
        self._subscription = await self._bus.subscribe(subject, self.server.handle)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.server.run()

    async def drain(self) -> None:
        """Answer the requests that were already sent."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        await self.server.until_idle()
        with contextlib.suppress(Unavailable):  # without a connection, no answer waits to be sent
            await self._bus.flush()

    async def close(self) -> None:
        """End all tasks."""
        await self.server.close()
        await self._reads.close()


class CacherApp:
    """One cacher process."""

    def __init__(
        self,
        config: CacherConfig,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        limits: CacherLimits = CACHER_LIMITS,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._host = make_host(
            config=config, role=ROLE, clock=self._clock, complete=self._complete_presence, entropy=entropy
        )
        self._limits = limits
        self._open_store = open_store
        self._store: ObjectStore | None = None
        self._traces: Traces = NO_TRACES
        self._cacher: Cacher | None = None

    async def open(self) -> None:
        """Connect to the store and the bus, and subscribe to requests."""
        config = self._config
        self._traces = open_traces(config, ROLE, self._clock)
        await self._host.open_http()
        self._store = await self._open_store(config.store_url, registry=self._host.registry)
        bus = await self._host.connect()
        self._cacher = Cacher(
            config=config,
            bus=bus,
            store=self._store,
            directory=self._host.directory,
            clock=self._clock,
            metrics=CacherMetrics(self._host.registry),
            limits=self._limits,
            traces=self._traces,
        )
        await self._host.listen()
        await self._cacher.open()
        await bus.flush()
        self._host.health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        assert self._cacher is not None, "run comes after open"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cacher.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Announce that this cacher leaves, then answer the requests already sent."""
        assert self._cacher is not None, "drain comes after open"
        await self._host.begin_drain()
        await self._cacher.drain()

    async def close(self) -> None:
        """End all tasks, disconnect, and close the store."""
        if self._cacher is not None:
            await self._cacher.close()
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._traces.close()
        await self._host.close_http()

    def _complete_presence(self, presence: Presence) -> Presence:
        assert self._cacher is not None, "presence comes after open"
        load_bytes, budget_bytes = self._cacher.server.waiting_bytes, self._config.requests_bytes_max
        return msgspec.structs.replace(
            presence, pool=self._config.pool, load_bytes=load_bytes, budget_bytes=budget_bytes
        )
