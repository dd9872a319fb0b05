"""A name has one cluster: conditional writes decide races, and a watch reports each difference once."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from penstock.clusters import (
    ClusterChanges,
    ClusterQuotas,
    ClusterRecord,
    ClusterRegistry,
    ClusterState,
    ClusterWatch,
    read_clusters,
)
from penstock.clusters.record import deleted, undeleted
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Corrupt, Invalid, Unavailable
from penstock.objectstore import ObjectInfo
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import cluster_record_key
from tests.testkit.sim.tenancy.records import RecordedStore

KEY = cluster_record_key("", "a")


def record(name: str, created_id: str = "1") -> ClusterRecord:
    return ClusterRecord(name=name, created_id=created_id, created_ms=1)


class ForgetfulStore(MemoryStore):
    """A store that takes a write, but whose answer is lost."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        await super().put(key, body, if_match=if_match)
        raise Unavailable("no answer")


class SilentStore(MemoryStore):
    """A store that answers no listing while it is silent."""

    is_silent = False

    async def list(self, prefix: str, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        if self.is_silent:
            raise Unavailable("no answer")
        return await super().list(prefix, after, limit)


async def test_of_many_creators_of_a_name_one_succeeds() -> None:
    store = MemoryStore()
    results = await asyncio.gather(
        *(ClusterRegistry(store).create(record("a", str(number))) for number in range(5)), return_exceptions=True
    )
    assert [type(each) for each in results].count(Conflict) == 4
    (winner,) = [each for each in results if not isinstance(each, BaseException)]
    assert await read_clusters(store) == [winner.record]


async def test_a_write_whose_answer_is_lost_counts_if_the_store_took_it() -> None:
    registry = ClusterRegistry(ForgetfulStore())
    created = await registry.create(record("a"))
    deleted = await registry.replace(created, msgspec.structs.replace(created.record, state=ClusterState.DELETED))
    found = await registry.find("a")
    assert found == deleted and found.record.state == ClusterState.DELETED


async def test_a_change_of_an_older_version_is_a_conflict() -> None:
    registry = ClusterRegistry(MemoryStore())
    created = await registry.create(record("a"))
    await registry.replace(created, msgspec.structs.replace(created.record, state=ClusterState.DELETED))
    with pytest.raises(Conflict, match="changed at the same time"):
        await registry.replace(created, msgspec.structs.replace(created.record, tenants=("t",)))


async def test_a_write_from_before_an_undelete_is_a_conflict_where_equal_bytes_have_equal_versions() -> None:
    """As in S3. A store may take a write long after its sender got an error."""
    registry = ClusterRegistry(RecordedStore(lambda: 0))
    made = await registry.create(record("a"))
    gone = await registry.replace(made, deleted(made.record, 1, 1))
    await registry.replace(gone, undeleted(gone.record))
    with pytest.raises(Conflict):
        await registry.replace(made, deleted(made.record, 2, 1))


@pytest.mark.parametrize("state", list(ClusterState))
async def test_a_name_is_free_only_when_its_cluster_is_gone(state: ClusterState) -> None:
    store = MemoryStore()
    registry = ClusterRegistry(store)
    created = await registry.create(record("a"))
    await registry.replace(created, msgspec.structs.replace(created.record, state=state))
    if state == ClusterState.GONE:
        assert await read_clusters(store) == []
        await registry.create(record("a", "2"))
        assert [each.created_id for each in await read_clusters(store)] == ["2"]
    else:
        with pytest.raises(Conflict, match=f"exists: its state is {state}"):
            await registry.create(record("a", "2"))


async def test_more_clusters_than_one_listing_has_are_read() -> None:
    store = MemoryStore()
    for number in range(1_005):
        await store.put(cluster_record_key("", f"c{number:04}"), [msgspec.json.encode(record(f"c{number:04}"))])
    assert len(await read_clusters(store)) == 1_005


async def test_a_name_that_begins_with_another_is_another_cluster() -> None:
    registry = ClusterRegistry(MemoryStore())
    await registry.create(record("ab"))
    assert await registry.find("a") is None


@pytest.mark.parametrize(
    "bad",
    [{"name": "a.b"}, {"server_names": ("UPPER",)}, {"server_names": ("*",)}, {"tenants": ("a b",)}],
)
async def test_a_record_with_an_impossible_name_is_rejected(bad: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        await ClusterRegistry(MemoryStore()).create(msgspec.structs.replace(record("a"), **bad))


async def test_a_damaged_record_is_corrupt_and_names_its_object() -> None:
    store = MemoryStore()
    await store.put(KEY, [b"{"])
    with pytest.raises(Corrupt, match=KEY):
        await read_clusters(store)


async def test_a_newer_release_may_add_fields() -> None:
    store = MemoryStore()
    await store.put(KEY, [msgspec.json.encode({**msgspec.to_builtins(record("a")), "colour": "red"})])
    assert await read_clusters(store) == [record("a")]


async def test_a_watch_reports_each_difference_once() -> None:
    store = MemoryStore()
    registry = ClusterRegistry(store)
    seen: list[ClusterChanges] = []
    watch = ClusterWatch(store, on_changes=seen.append)
    await watch.open()
    assert not seen

    created = await registry.create(record("a"))
    await watch.look()
    await watch.look()
    limited = msgspec.structs.replace(created.record, quotas=ClusterQuotas(partitions=5))
    changed = await registry.replace(created, limited)
    await watch.look()
    ended = await registry.replace(changed, msgspec.structs.replace(limited, state=ClusterState.DELETED))
    await watch.look()
    await watch.look()
    assert seen == [
        ClusterChanges(added=(created.record,)),
        ClusterChanges(changed=(changed.record,)),
        ClusterChanges(removed=(changed.record,)),
    ]
    assert not watch.clusters and watch.records == {"a": ended.record}


async def test_a_cluster_made_anew_between_two_looks_is_removed_and_added() -> None:
    store = MemoryStore()
    registry = ClusterRegistry(store)
    first = await registry.create(record("a", "1"))
    seen: list[ClusterChanges] = []
    watch = ClusterWatch(store, on_changes=seen.append)
    await watch.open()
    await registry.replace(first, msgspec.structs.replace(first.record, state=ClusterState.GONE))
    second = await registry.create(record("a", "2"))
    await watch.look()
    assert seen[-1] == ClusterChanges(added=(second.record,), removed=(first.record,))


async def test_a_damaged_record_keeps_the_cluster_as_it_was() -> None:
    store = MemoryStore()
    created = await ClusterRegistry(store).create(record("a"))
    problems: dict[str, str] = {}
    watch = ClusterWatch(store, set_degraded=problems.__setitem__)
    await watch.open()
    etag = await store.put(KEY, [b"{"], if_match=created.etag)
    await store.put(cluster_record_key("", "b"), [msgspec.json.encode(record("x"))])
    await watch.look()
    assert list(watch.clusters) == ["a"] and problems["registry"]
    await store.put(KEY, [msgspec.json.encode(created.record)], if_match=etag)
    await store.delete([cluster_record_key("", "b")])
    await watch.look()
    assert list(watch.clusters) == ["a"] and not problems["registry"]


async def test_a_silent_store_removes_no_cluster() -> None:
    store = SilentStore()
    await ClusterRegistry(store).create(record("a"))
    problems: dict[str, str] = {}
    told = asyncio.Event()

    def set_degraded(name: str, reason: str) -> None:
        problems[name] = reason
        told.set()

    watch = ClusterWatch(store, set_degraded=set_degraded, interval_s=0)
    await watch.open()
    store.is_silent = True
    told.clear()
    running = asyncio.create_task(watch.run())
    await asyncio.wait_for(told.wait(), 5)
    assert list(watch.clusters) == ["a"] and "no answer" in problems["registry"]
    running.cancel()
