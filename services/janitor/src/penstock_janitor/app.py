"""Builds and wires one janitor, and stops it in order."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock_janitor.config import JanitorConfig
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.service import Janitor

ROLE = "janitor"


class JanitorApp:
    """One janitor process."""

    def __init__(
        self,
        config: JanitorConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(config, ROLE, self._clock, entropy=self._entropy)
        self._open_store = open_store
        self._store: ObjectStore | None = None

    async def open(self) -> None:
        """Connect to everything."""
        config = self._config
        await self._host.open_http()
        self._store = await self._open_store(config.store_url, registry=self._host.registry)
        bus = await self._host.connect()
        metrics = JanitorMetrics(self._host.registry)
        tell = self._host.health.set_degraded
        self._janitor = Janitor(config, bus, self._store, self._clock, self._entropy, metrics, tell)
        self._host.health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._janitor.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Say goodbye, then bring to an end what was begun."""
        await self._host.begin_drain()
        await self._janitor.drain()

    async def close(self) -> None:
        """Let go of everything."""
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._host.close_http()
