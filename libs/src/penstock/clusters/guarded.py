"""The app of one cluster, which ends when the cluster is deleted in the registry."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from penstock.clusters.record import NO_QUOTAS, ClusterRecord, ClusterState, decode_record
from penstock.contracts.errors import Corrupt, Fenced, Invalid, Unavailable
from penstock.objectstore import NotFound, ObjectStore, open_store
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.landing import without_landing
from penstock.runtime.process.life import App
from penstock.segment.keys import cluster_record_key

INTERVAL_S = 5.0

log = structlog.get_logger()


class GuardedApp:
    """An app that serves a cluster which is not registered, or registered and active.

    A process that ignored the registry would accept records until a janitor deletes the journal under it.
    """

    def __init__(
        self,
        make: Callable[..., App],
        config: ServiceConfig,
        *,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`make` builds the app; it gets `quotas`, which returns the present quotas of the cluster, and `admit`.

        The app calls `admit` while it opens, before it touches the objects of the cluster. It may make other checks
        first: a process that fails them has opened no store.
        """
        self._quotas = NO_QUOTAS
        self._app = make(quotas=lambda: self._quotas, admit=self._admit)
        self._config = config
        self._open_store = open_store
        self._interval_s = interval_s
        self._store: ObjectStore | None = None

    async def open(self) -> None:
        """Open the app; `Fenced` if its cluster is deleted."""
        await self._app.open()

    async def run(self) -> None:
        """Run the app; `Fenced` as soon as its cluster is deleted."""
        assert self._store is not None, "run comes after open, and open after admit"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(self._store))
            await self._app.run()
            raise RuntimeError("the service ended without a stop signal")

    async def drain(self) -> None:
        """Drain the app."""
        await self._app.drain()

    async def close(self) -> None:
        """Close the app, then the registry."""
        await self._app.close()
        if self._store is not None:
            await self._store.close()

    async def _admit(self) -> None:
        """Open the registry; `Fenced` if the cluster is deleted."""
        self._store = await self._open_store(without_landing(self._config.store_url))
        try:
            await self._check(self._store)
        except Corrupt as error:  # no janitor removes a cluster that is served
            log.warning("registry_not_read", error=str(error))

    async def _watch(self, store: ObjectStore) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._check(store)
            except (Unavailable, Corrupt, Invalid) as error:  # a store that denies reads shows no deletion
                log.warning("registry_not_read", error=str(error))

    async def _check(self, store: ObjectStore) -> None:
        key = cluster_record_key("", self._config.cluster)
        try:
            record = decode_record(key, await store.get(key))
        except NotFound:
            self._quotas = NO_QUOTAS
            return
        self._quotas = record.quotas
        # A cluster that is gone left a free name. A process that uses a name without a record begins a new cluster.
        if not record.is_active and record.state != ClusterState.GONE:
            raise Fenced(_why(record))


def _why(record: ClusterRecord) -> str:
    if record.state == ClusterState.DELETED:
        return (
            f"the cluster {record.name} is deleted; `penstock cluster undelete {record.name}` brings it back, as long "
            f"as its undelete window runs"
        )
    return f"the cluster {record.name} is deleted, and a janitor removes it; wait for its end, or use another name"
