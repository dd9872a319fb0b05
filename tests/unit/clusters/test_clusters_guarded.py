"""A process of one cluster ends when the cluster is deleted, and serves in all other cases."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from penstock.clusters import ClusterQuotas, ClusterRecord, ClusterRegistry, ClusterState
from penstock.clusters.guarded import GuardedApp
from penstock.contracts.errors import Fenced, Invalid
from penstock.objectstore import ObjectStore
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.process.config import ServiceConfig
from penstock.segment.keys import cluster_record_key
from tests.testkit.waiting import TIMEOUT_S, until

RECORD = ClusterRecord(name="a", created_id="1", created_ms=1)


class Served:
    """An app that only counts its steps."""

    def __init__(self, quotas: Callable[[], ClusterQuotas], admit: Callable[[], Awaitable[None]]) -> None:
        self.quotas = quotas
        self.admit = admit
        self.steps: list[str] = []

    async def open(self) -> None:
        await self.admit()
        self.steps.append("open")

    async def run(self) -> None:
        self.steps.append("run")
        await asyncio.Event().wait()

    async def drain(self) -> None:
        self.steps.append("drain")

    async def close(self) -> None:
        self.steps.append("close")


def guarded(store: MemoryStore) -> tuple[GuardedApp, Served]:
    made: list[Served] = []

    def make(quotas: Callable[[], ClusterQuotas], admit: Callable[[], Awaitable[None]]) -> Served:
        made.append(Served(quotas, admit))
        return made[-1]

    async def open_store(url: str, **_: Any) -> ObjectStore:
        return store

    app = GuardedApp(make, ServiceConfig(cluster="a"), open_store=open_store, interval_s=0.001)
    return app, made[0]


@pytest.mark.parametrize("state", [ClusterState.DELETED, ClusterState.EMPTYING])
async def test_a_deleted_cluster_is_not_opened(state: ClusterState) -> None:
    store = MemoryStore()
    await ClusterRegistry(store).create(msgspec.structs.replace(RECORD, state=state))
    app, served = guarded(store)
    with pytest.raises(Fenced, match="the cluster a is deleted"):
        await app.open()
    assert "open" not in served.steps
    await app.close()


@pytest.mark.parametrize("state", [None, ClusterState.ACTIVE, ClusterState.GONE])
async def test_other_clusters_are_served_until_they_are_deleted(state: ClusterState | None) -> None:
    store = MemoryStore()
    registry = ClusterRegistry(store)
    if state is not None:
        await registry.create(msgspec.structs.replace(RECORD, state=state))
    app, served = guarded(store)
    await app.open()
    running = asyncio.create_task(app.run())
    await until(lambda: served.steps == ["open", "run"])
    found = await registry.find("a")
    deleted = msgspec.structs.replace(RECORD, created_id="2", state=ClusterState.DELETED)
    await (registry.create(deleted) if found is None else registry.replace(found, deleted))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, TIMEOUT_S)
    assert isinstance(ended.value.exceptions[0], Fenced)
    await app.close()


async def test_a_damaged_record_does_not_stop_the_process_and_quotas_are_followed() -> None:
    store = MemoryStore()
    etag = await store.put(cluster_record_key("", "a"), [b"{"])
    app, served = guarded(store)
    await app.open()
    running = asyncio.create_task(app.run())
    limited = msgspec.structs.replace(RECORD, quotas=ClusterQuotas(partitions=5))
    await store.put(cluster_record_key("", "a"), [msgspec.json.encode(limited)], if_match=etag)
    await until(lambda: served.quotas().partitions == 5)
    running.cancel()
    await asyncio.wait({running})
    await app.close()


class Denying(MemoryStore):
    """A store that can deny reads."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: int | None = None  # reads so far; None: it does not deny

    async def get(self, key: str) -> bytes:
        if self.denied is not None:
            self.denied += 1
            raise Invalid("s3 answered AccessDenied")
        return await super().get(key)


async def test_a_store_that_denies_reads_does_not_stop_a_process_that_serves() -> None:
    store = Denying()
    found = await ClusterRegistry(store).create(RECORD)
    app, served = guarded(store)
    await app.open()
    running = asyncio.create_task(app.run())
    await until(lambda: served.steps == ["open", "run"])
    store.denied = 0
    await until(lambda: store.denied is None or store.denied > 3 or running.done())
    assert not running.done()
    store.denied = None
    await ClusterRegistry(store).replace(found, msgspec.structs.replace(RECORD, state=ClusterState.DELETED))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, TIMEOUT_S)
    assert isinstance(ended.value.exceptions[0], Fenced)
    await app.close()
