"""One process for many virtual clusters: each has an app of its own, which opens, runs and ends by itself.

The apps share a connection to NATS, an HTTP endpoint and an event loop, and no other object (ADR 0059). An app that
fails is contained here: the cluster is degraded, and starts again after a pause. The other clusters go on.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from penstock.clusters.hosted import CollectGarbage, Hosted, HostingLimits
from penstock.clusters.hosted_health import HostedHealth
from penstock.clusters.record import NO_QUOTAS, ClusterQuotas, ClusterRecord
from penstock.clusters.watch import ClusterChanges, ClusterWatch
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.config import ALL_CLUSTERS, HostingConfig, for_cluster
from penstock.runtime.process.garbage import GarbagePolicy, PolicyOfAnother, collect_frozen
from penstock.runtime.process.host import Connection
from penstock.runtime.process.landing import without_landing
from penstock.runtime.process.life import App
from penstock.runtime.process.memory import freeze_startup_objects
from penstock.runtime.process.shared_host import SharedHost

PROCESS = ""  # the name of the role that stands for the whole process; its metrics have no label
LABEL = "cluster"
# Of the process's deadline, for the drain of each cluster. All drain at the same time.
DRAIN_SHARE = 0.8
DEFAULT_LIMITS = HostingLimits()

log = structlog.get_logger()


class ProcessParts(msgspec.Struct, frozen=True):
    """The parts of a hosting process that work for all clusters may use."""

    watch: ClusterWatch
    store: ObjectStore  # without landing stores
    connection: Connection
    set_degraded: Callable[[str, str], None]
    registry: CollectorRegistry  # of the process; its metrics have no label


async def _nothing() -> None:
    """Close no part."""


class HostedRole(msgspec.Struct, frozen=True, kw_only=True):
    """A service as a process of many clusters runs it.

    `make` builds the app of one cluster from its settings and `make_host`, as for a process of its own. It also gets
    `quotas`, which returns the cluster's present quotas.
    """

    make: Callable[..., App]
    upkeep: Callable[[ProcessParts], Coroutine[Any, Any, None]] | None = (
        None  # work for all clusters; runs until the end
    )
    close: Callable[[], Awaitable[None]] = _nothing  # closes what all clusters share, after the apps of all clusters
    garbage: GarbagePolicy = PolicyOfAnother()


class HostingApp:
    """A process that hosts the clusters named in its settings, or all that are registered."""

    def __init__(
        self,
        config: HostingConfig,
        role: str,
        hosted_role: HostedRole,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_shared: Callable[..., SharedHost] = SharedHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        collect: Callable[[], None] = collect_frozen,
        freeze: Callable[[], None] = freeze_startup_objects,
        limits: HostingLimits = DEFAULT_LIMITS,
    ) -> None:
        self._config = config
        self._role = hosted_role
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._shared = make_shared(config.instance, label=LABEL, health=HostedHealth(self._problems))
        self._host = self._shared.host_maker(PROCESS)(config=config, role=role, clock=self._clock, entropy=entropy)
        self._open_store = open_store
        self._limits = limits
        self._collect = CollectGarbage(self._clock, collect, limits.collect_interval_s)
        self._freeze = freeze
        self._slots = asyncio.Semaphore(limits.starts_max)
        self._hosted: dict[str, Hosted] = {}
        self._group: asyncio.TaskGroup | None = None
        self._first: set[str] = set()  # clusters of the start that neither served nor failed yet
        self._is_draining = False
        self._all_ended = asyncio.Event()
        self._store: ObjectStore | None = None
        self._watch: ClusterWatch | None = None
        self._add_metrics()

    def _add_metrics(self) -> None:
        registry = self._host.registry
        gauge = Gauge(
            "penstock_hosted_clusters", "Virtual clusters of this process, by state.", ["state"], registry=registry
        )
        for state in ("serving", "starting", "failed"):
            gauge.labels(state).set_function(partial(self._count, state))
        self._failures = Counter(
            "penstock_hosted_cluster_failures",
            "Ends of a cluster's app in this process that no stop caused; each is followed by a new start.",
            ["cluster"],
            registry=registry,
        )

    @property
    def hosted(self) -> Mapping[str, Hosted]:
        """The clusters of this process by name, also those that start or fail."""
        return self._hosted

    async def open(self) -> None:
        """Connect, and read the registry."""
        self._role.garbage.start()
        await self._host.open_http()
        await self._host.connect()
        self._store = await self._open_store(without_landing(self._config.store_url))
        self._watch = ClusterWatch(
            self._store,
            on_changes=self._on_changes,
            set_degraded=self._host.health.set_degraded,
            interval_s=self._limits.watch_interval_s,
        )
        await self._watch.open()

    async def run(self) -> None:
        """Host the clusters until cancelled. Only a failure of a shared part ends the process."""
        assert self._watch is not None and self._store is not None, "run comes after open"
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._host.bus.run_until_closed())
            group.create_task(self._role.garbage.run())
            group.create_task(self._watch.run())
            if self._role.upkeep is not None:
                host = self._host
                parts = ProcessParts(self._watch, self._store, host.connection, host.health.set_degraded, host.registry)
                group.create_task(self._role.upkeep(parts))
            self._match()
            self._first = set(self._hosted)
            self._host.health.require(self._starting)
            self._host.health.set_ready(True)
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None  # a cluster that ends now is not started again

    async def drain(self) -> None:
        """Drain all clusters at the same time."""
        self._host.health.set_ready(False, "draining")
        self._is_draining = True
        self._match()
        await self._all_ended.wait()

    async def close(self) -> None:
        """Close the shared parts."""
        await self._host.disconnect()
        if self._store is not None:
            await self._store.close()
        await self._role.close()
        await self._host.close_http()

    def _on_changes(self, changes: ClusterChanges) -> None:
        for record in changes.added:
            log.info("cluster_registered", cluster=record.name)
        for record in changes.removed:
            log.info("cluster_deleted", cluster=record.name)
        self._match()

    def _match(self) -> None:
        """Start the clusters that are wanted, and stop all others."""
        if self._group is None:
            return
        wanted = {} if self._is_draining else self._wanted()
        for name, hosted in self._hosted.items():
            if name not in wanted or wanted[name] != hosted.created_id:
                hosted.stop.set()
        for name, created_id in wanted.items():
            if name not in self._hosted:
                self._start(name, created_id)
        if self._is_draining and not self._hosted:
            self._all_ended.set()

    def _wanted(self) -> dict[str, str]:
        """The `created_id` of each cluster to serve; "" for one without a record, which only its name selects."""
        assert self._watch is not None
        records: Mapping[str, ClusterRecord] = self._watch.records
        names = list(records) if self._config.clusters == ALL_CLUSTERS else self._config.cluster_names
        return {
            name: records[name].created_id if name in records else ""
            for name in names
            if name not in records or records[name].is_active
        }

    def _start(self, name: str, created_id: str) -> None:
        assert self._group is not None
        share = int(self._config.drain_deadline_ms * DRAIN_SHARE)
        config = msgspec.structs.replace(for_cluster(self._config, name), clusters="", drain_deadline_ms=share)
        hosted = Hosted(
            config=config,
            created_id=created_id,
            make=partial(self._role.make, quotas=partial(self._quotas, name)),
            shared=self._shared,
            slots=self._slots,
            clock=self._clock,
            failures=self._failures.labels(name),
            collect=self._collect,
            freeze=self._freeze,
            limits=self._limits,
        )
        self._hosted[name] = hosted
        context = contextvars.copy_context()
        context.run(structlog.contextvars.bind_contextvars, cluster=name)
        task = self._group.create_task(hosted.run(), context=context)
        task.add_done_callback(lambda _: self._remove(name))

    def _quotas(self, name: str) -> ClusterQuotas:
        """The present quotas of a cluster; a cluster without a record has none."""
        assert self._watch is not None
        record = self._watch.records.get(name)
        return record.quotas if record is not None else NO_QUOTAS

    def _remove(self, name: str) -> None:
        del self._hosted[name]
        self._failures.remove(name)  # no series is left of a cluster that this process no longer serves
        self._match()

    def _starting(self) -> str:
        """Why the process is not ready: clusters that it found at its start did not serve or fail yet."""
        self._first = {name for name in self._first if name in self._hosted and self._hosted[name].is_new}
        return f"{len(self._first)} clusters start" if self._first else ""

    def _count(self, state: str) -> int:
        return sum(hosted.state == state for hosted in self._hosted.values())

    def _problems(self) -> Mapping[str, str]:
        return {name: hosted.problem for name, hosted in self._hosted.items() if hosted.problem}
