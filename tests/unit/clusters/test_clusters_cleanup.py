"""A deleted cluster is removed completely after its window, also if steps fail, and no other cluster is touched."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from penstock.clusters import ClusterQuotas, ClusterRecord, ClusterRegistry, ClusterState, ClusterWatch
from penstock.clusters.cleanup import Cleanup, CleanupLimits
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Unavailable, Undelivered
from penstock.objectstore import ObjectInfo, ObjectStore
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.clock import SystemEntropy
from tests.testkit.fakes.clock import ManualClock

WINDOW_MS = 7 * 86_400_000
REST_MS = 3_600_000
OTHERS = ("b/journal-identity", "a-2/segments/001/0-x", "clusters.registry/b")
OWN = ("a/journal-identity", "a/segments/001/0-x", "a/snapshots/1", *(f"a/journal/{number:04}" for number in range(30)))


class Store(MemoryStore):
    """A store that dies at one of its calls, before or after it took effect."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now_ms=clock.now_ms)
        self.calls = 0
        self.dies_at = -1
        self.dies_after = False
        self.before_list: Callable[[str], Awaitable[None]] | None = None

    async def _call(self, work: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls == self.dies_at and not self.dies_after:
            raise Unavailable("died before")
        found = await work()
        if self.calls == self.dies_at:
            raise Unavailable("died after")
        return found

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        made: str = await self._call(lambda: MemoryStore.put(self, key, body, if_match=if_match))
        return made

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call(lambda: MemoryStore.delete(self, keys))

    async def list(self, prefix: str, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        if self.before_list is not None:
            await self.before_list(prefix)
        found: list[ObjectInfo] = await self._call(lambda: MemoryStore.list(self, prefix, after, limit))
        return found


class Bus:
    """A bus on which sequencers serve some clusters."""

    def __init__(self) -> None:
        self.served: set[str] = set()

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        if subject.split(".")[1] not in self.served:
            raise Undelivered("no subscriber")
        return b""


class Connection:
    """A connection to servers with streams."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.streams = {"penstock-journal-a", "penstock-landing-a", "penstock-journal-b", "penstock-landing-b"}

    async def delete_stream(self, name: str) -> None:
        self.streams.discard(name)


class World:
    """A store with the deleted cluster a and others, and one janitor."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store(self.clock)
        self.registry = ClusterRegistry(self.store)
        self.connection = Connection()
        self.watch = ClusterWatch(self.store)
        self.problems: dict[str, str] = {}
        self.cleanup = self.new_cleanup()

    def new_cleanup(self, **changes: Any) -> Cleanup:
        settings: dict[str, Any] = {
            "watch": self.watch,
            "store": self.store,
            "connection": self.connection,
            "clock": self.clock,
            "entropy": SystemEntropy(),
            "set_degraded": self.problems.__setitem__,
            "address": "memory://",
            "has_own_landing": True,
            "is_wanted": lambda name: True,
            "open_store": self._open_store,
            "limits": CleanupLimits(page_objects=7),
        }
        return Cleanup(**settings | changes)

    async def _open_store(self, url: str) -> ObjectStore:
        return self.store

    async def start(self) -> None:
        quotas = ClusterQuotas(partitions=5)
        record = ClusterRecord(name="a", created_id="1", created_ms=1, quotas=quotas, tenants=("t",))
        created = await self.registry.create(record)
        for key in (*OWN, *OTHERS):
            await self.store.put(key, [b"x"])
        now_ms = self.clock.now_ms()
        await self.registry.replace(
            created,
            msgspec.structs.replace(
                record, state=ClusterState.DELETED, deleted_ms=now_ms, undelete_until_ms=now_ms + WINDOW_MS
            ),
        )

    async def round(self) -> None:
        await self.watch.look()
        await self.cleanup.clean_all()

    async def state(self) -> ClusterState:
        found = await self.registry.find("a")
        assert found is not None
        return found.record.state

    async def keys(self) -> set[str]:
        return {info.key for info in await MemoryStore.list(self.store, "")} - {"clusters.registry/a"}

    def advance(self, milliseconds: int) -> None:
        self.clock.now_s += milliseconds / 1000


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def test_nothing_is_deleted_while_the_window_runs(world: World) -> None:
    before = await world.keys()
    for _ in range(3):
        await world.round()
        world.advance(WINDOW_MS // 3 - 1)
    await world.round()
    assert await world.keys() == before and await world.state() == ClusterState.DELETED
    assert "penstock-journal-a" in world.connection.streams


async def test_after_the_window_all_goes_and_after_the_rest_the_name_is_free(world: World) -> None:
    world.advance(WINDOW_MS)
    await world.round()
    assert await world.keys() == set(OTHERS)
    assert world.connection.streams == {"penstock-journal-b", "penstock-landing-b"}
    with pytest.raises(Conflict):
        await world.registry.create(ClusterRecord(name="a", created_id="2", created_ms=2))
    await world.round()
    world.advance(REST_MS - 1)
    await world.round()
    assert await world.state() == ClusterState.EMPTYING
    world.advance(1)
    await world.round()
    assert await world.state() == ClusterState.GONE
    await world.registry.create(ClusterRecord(name="a", created_id="2", created_ms=2))


async def test_an_upload_that_arrives_late_is_deleted_and_starts_the_rest_anew(world: World) -> None:
    world.advance(WINDOW_MS)
    await world.round()
    await world.round()
    world.advance(REST_MS - 1)
    await world.store.put("a/segments/001/0-late", [b"x"])
    await world.round()
    world.advance(1)
    await world.round()
    assert await world.state() == ClusterState.EMPTYING and await world.keys() == set(OTHERS)
    world.advance(REST_MS)
    await world.round()
    assert await world.state() == ClusterState.GONE


@pytest.mark.parametrize("dies_after", [False, True])
async def test_a_janitor_may_die_at_every_call_of_the_store(dies_after: bool) -> None:
    call = 0
    while True:
        call += 1
        world = World()
        await world.start()
        world.advance(WINDOW_MS)
        world.store.calls, world.store.dies_at, world.store.dies_after = 0, call, dies_after
        for _ in range(10):
            was_alive = world.store.calls < call
            with contextlib.suppress(Unavailable):
                await world.round()
            if was_alive and world.store.calls >= call:
                world.cleanup = world.new_cleanup()  # the next janitor knows nothing of this one
            world.advance(REST_MS)
        calls, world.store.dies_at = world.store.calls, -1
        assert await world.state() == ClusterState.GONE, call
        assert await world.keys() == set(OTHERS), call
        assert world.connection.streams == {"penstock-journal-b", "penstock-landing-b"}
        if calls < call:
            break
    assert call > 20


async def test_a_wrong_clock_of_the_janitor_deletes_nothing(world: World) -> None:
    fast = ManualClock()
    fast.now_s += 10 * WINDOW_MS / 1000
    world.cleanup = world.new_cleanup(clock=fast)
    before = await world.keys()
    await world.round()
    assert await world.state() == ClusterState.DELETED and await world.keys() == before


class WrongClock(ManualClock):
    """A clock whose wall time is wrong."""

    def __init__(self, right: ManualClock, ahead_ms: int) -> None:
        self._right = right
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._right.now_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        return self._right.monotonic_s()


@pytest.mark.parametrize("ahead_ms", [-10 * REST_MS, 10 * REST_MS])
@pytest.mark.parametrize("is_first_wrong", [False, True])
async def test_a_wrong_clock_neither_shortens_the_rest_nor_makes_it_longer(
    world: World, ahead_ms: int, is_first_wrong: bool
) -> None:
    world.advance(WINDOW_MS)
    await world.round()
    right, wrong = world.cleanup, world.new_cleanup(clock=WrongClock(world.clock, ahead_ms))
    world.cleanup, other = (wrong, right) if is_first_wrong else (right, wrong)
    await world.round()  # finds nothing
    world.cleanup = other
    await world.round()
    world.advance(REST_MS - 1)
    await world.round()
    assert await world.state() == ClusterState.EMPTYING
    world.advance(1)
    await world.round()
    assert await world.state() == ClusterState.GONE


async def test_a_cluster_that_is_still_served_is_not_touched(world: World) -> None:
    world.connection.bus.served.add("a")
    world.advance(WINDOW_MS)
    before = await world.keys()
    await world.round()
    assert await world.state() == ClusterState.DELETED and await world.keys() == before
    assert "a sequencer still serves it" in world.problems["cleanup"]
    world.connection.bus.served.clear()
    await world.round()
    assert not world.problems["cleanup"] and await world.keys() == set(OTHERS)


async def test_a_cluster_that_came_back_is_not_touched(world: World) -> None:
    world.advance(WINDOW_MS)
    await world.watch.look()  # the janitor still sees the deletion
    found = await world.registry.find("a")
    assert found is not None
    await world.registry.replace(found, msgspec.structs.replace(found.record, state=ClusterState.ACTIVE))
    await world.cleanup.clean_all()
    assert await world.keys() >= set(OWN)


async def test_a_janitor_that_is_overtaken_deletes_nothing_of_a_new_cluster_with_the_name(world: World) -> None:
    async def overtake(prefix: str) -> None:
        """Another janitor finishes, and the name is used again, just before this janitor lists objects."""
        if prefix != "a/":
            return
        world.store.before_list = None
        await world.store.delete(OWN)
        found = await world.registry.find("a")
        assert found is not None
        await world.registry.replace(found, msgspec.structs.replace(found.record, state=ClusterState.GONE))
        await world.registry.create(ClusterRecord(name="a", created_id="2", created_ms=2))
        await world.store.put("a/journal-identity", [b"new"])

    world.advance(WINDOW_MS)
    world.store.before_list = overtake
    await world.round()
    assert await world.keys() == {"a/journal-identity", *OTHERS} and await world.state() == ClusterState.ACTIVE


async def test_a_janitor_that_only_looks_deletes_nothing(world: World) -> None:
    world.cleanup = world.new_cleanup(dry_run=True)
    world.advance(WINDOW_MS)
    before = await world.keys()
    await world.round()
    assert await world.keys() == before and await world.state() == ClusterState.DELETED


async def test_a_janitor_of_other_clusters_deletes_nothing(world: World) -> None:
    world.cleanup = world.new_cleanup(is_wanted=lambda name: name == "b")
    world.advance(WINDOW_MS)
    before = await world.keys()
    await world.round()
    assert await world.keys() == before
