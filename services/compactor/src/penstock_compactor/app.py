"""Builds and wires one compactor, and stops it in order."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.objectstore import open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock.spark.session import close_session, is_alive, missing_parts, open_session
from penstock_compactor.config import CompactorConfig, key_limits, plan_limits, spark_settings
from penstock_compactor.keys.work import KeyWork
from penstock_compactor.merge.jobs import Jobs
from penstock_compactor.merge.spark_runner import SparkRunner
from penstock_compactor.merge.tasks import StorePlace
from penstock_compactor.metrics import CompactorMetrics
from penstock_compactor.service import Compactor

ROLE = "compactor"
FILE = "file://"


class CompactorApp:
    """One compactor process."""

    def __init__(
        self,
        config: CompactorConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        missing: Callable[[], str] = missing_parts,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(config, ROLE, self._clock, entropy=self._entropy)
        self._missing = missing
        self._spark: SparkRunner | None = None

    async def open(self) -> None:
        """Connect to everything; Spark is started by the first job."""
        config = self._config
        await self._host.open_http()
        store = await open_store(config.store_url)  # Spark's tasks open it, and this tells at once if they cannot
        await store.close()
        bus = await self._host.connect()
        metrics = CompactorMetrics(self._host.registry)
        limits = plan_limits(config)
        settings = spark_settings(config)
        sequencers = SequencerClient(bus, config.cluster, self._clock)
        self._spark = SparkRunner(
            opening=lambda: open_session(f"penstock-{config.instance}", config.spark_master, settings),
            closing=close_session,
            is_alive=is_alive,
            clock=self._clock,
            metrics=metrics,
        )
        place = StorePlace(_absolute(config.store_url), config.cluster)
        jobs = Jobs(
            holder=config.instance,
            place=place,
            sequencers=sequencers,
            spark=self._spark,
            limits=limits,
            clock=self._clock,
            entropy=self._entropy,
            metrics=metrics,
        )
        keys = KeyWork(
            place=place,
            sequencers=sequencers,
            jobs=jobs,
            spark=self._spark,
            limits=key_limits(config),
            clock=self._clock,
            metrics=metrics,
            interval_s=config.keys_interval_ms / 1000,
        )
        self._compactor = Compactor(
            sequencers=sequencers,
            jobs=jobs,
            keys=keys,
            spark=self._spark,
            limits=limits,
            clock=self._clock,
            metrics=metrics,
            missing=self._missing,
            tell=self._host.health.set_degraded,
            jobs_max=config.jobs_max,
            interval_s=config.plan_interval_ms / 1000,
            idle_s=config.spark_idle_s,
        )
        self._host.health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compactor.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Say goodbye, then leave what was begun to others."""
        await self._host.begin_drain()
        await self._compactor.drain()

    async def close(self) -> None:
        """Let go of everything."""
        await self._host.disconnect()
        if self._spark is not None:
            await self._spark.close()
        await self._host.close_http()


def _absolute(store_url: str) -> str:
    """The address as workers understand it, which may run in other folders."""
    if not store_url.startswith(FILE):
        return store_url
    return FILE + quote(str(Path(unquote(store_url.removeprefix(FILE))).absolute()))
