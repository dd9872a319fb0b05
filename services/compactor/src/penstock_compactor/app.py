"""Builds and wires one compactor, and stops it in order."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from penstock.contracts.subjects import Sender
from penstock.objectstore import ObjectStore, absolute_address, open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock.spark.session import missing_parts
from penstock_compactor.config import CompactorConfig, key_limits, plan_limits
from penstock_compactor.jobs.job_client import JobClient, JobLimits
from penstock_compactor.jobs.values import StorePlace
from penstock_compactor.keys.limits import KeyWorkLimits
from penstock_compactor.keys.work import KeyWork
from penstock_compactor.merge.work import MergeLimits, MergeWork
from penstock_compactor.metrics import CompactorMetrics
from penstock_compactor.service import Compactor, LoopLimits
from penstock_compactor.shared import SharedWork

ROLE = "compactor"


class CompactorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a compactor's parts that are not settings."""

    loop: LoopLimits = LoopLimits()
    jobs: JobLimits = JobLimits()
    merge: MergeLimits = MergeLimits()
    keys: KeyWorkLimits = KeyWorkLimits()


DEFAULT_LIMITS = CompactorLimits()


class CompactorApp:
    """The compactor of one cluster."""

    def __init__(
        self,
        config: CompactorConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        missing: Callable[[], str] = missing_parts,
        *,
        shared: SharedWork | None = None,
        limits: CompactorLimits = DEFAULT_LIMITS,
    ) -> None:
        """`shared` has the parts of a process of several clusters, which closes them itself."""
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(config, ROLE, self._clock, entropy=self._entropy)
        self._open_store = open_store
        self._missing = missing
        self._limits = limits
        self._is_alone = shared is None
        self._shared = shared or SharedWork(config, self._clock, self._host.registry)

    async def open(self) -> None:
        """Connect to the bus and check the store; the first job starts Spark."""
        config = self._config
        await self._host.open_http()
        store = await self._open_store(config.store_url)  # only a check: Spark's tasks open the store later
        await store.close()
        await self._host.connect()
        metrics = CompactorMetrics(self._host.registry)
        self._compactor = self._build(self._host.sequencers(Sender.COMPACTOR), metrics)
        self._host.health.set_ready(True)

    def _build(self, sequencers: SequencerClient, metrics: CompactorMetrics) -> Compactor:
        config, limits, spark = self._config, self._limits, self._shared.spark
        place = StorePlace(absolute_address(config.store_url), config.cluster)
        client = JobClient(
            holder=config.instance,
            sequencers=sequencers,
            clock=self._clock,
            entropy=self._entropy,
            metrics=metrics,
            limits=limits.jobs,
        )
        merging = MergeWork(
            place=place,
            client=client,
            spark=spark,
            plan_limits=plan_limits(config),
            clock=self._clock,
            entropy=self._entropy,
            metrics=metrics,
            limits=limits.merge,
        )
        keys = KeyWork(
            place=place,
            sequencers=sequencers,
            client=client,
            spark=spark,
            plan_limits=key_limits(config),
            clock=self._clock,
            entropy=self._entropy,
            metrics=metrics,
            interval_s=config.keys_interval_ms / 1000,
            limits=limits.keys,
        )
        return Compactor(
            sequencers=sequencers,
            client=client,
            merging=merging,
            keys=keys,
            spark=spark,
            plan_limits=plan_limits(config),
            clock=self._clock,
            metrics=metrics,
            missing=self._missing,
            set_degraded=self._host.health.set_degraded,
            slots=self._shared.slots,
            jobs_max=config.jobs_max,
            interval_s=config.plan_interval_ms / 1000,
            idle_s=config.spark_idle_s,
            limits=limits.loop,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compactor.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Announce that this compactor leaves, then cancel the running jobs."""
        await self._host.begin_drain()
        await self._compactor.drain()

    async def close(self) -> None:
        """Close the connections, and a Spark session that no other cluster shares."""
        ends = [self._host.disconnect()]
        if self._is_alone:
            ends.append(self._shared.close())
        await asyncio.gather(*ends)
        await self._host.close_http()
