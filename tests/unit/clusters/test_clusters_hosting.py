"""One process serves many clusters: each begins, fails and ends by itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec
import prometheus_client
import pytest

from penstock.cli.agent.app import AgentApp
from penstock.clusters import ClusterQuotas, ClusterRecord, ClusterRegistry, ClusterState
from penstock.clusters.hosted import HostingLimits
from penstock.clusters.hosting import HostedRole, HostingApp
from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.objectstore import ObjectStore
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.bus.bus import Bus, Inbound
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.config import HostingConfig, for_cluster, read_config
from penstock.runtime.process.host import ServiceHost
from penstock.runtime.process.life import App
from penstock.runtime.process.shared_host import HostMaker, SharedHost
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.waiting import TIMEOUT_S, until

LIMITS = HostingLimits(starts_max=2, first_pause_s=0.001, pause_max_s=0.002, watch_interval_s=0.001)


class Connection:
    """A connection over the memory bus."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def close(self) -> None:
        await self.bus.close()


class Http:
    """An endpoint that only keeps what it would show."""

    address = "here:0"

    def __init__(self, health: Any, registry: Any, *_: Any, **__: Any) -> None:
        self.health, self.registry = health, registry

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class ClusterApp:
    """An app that lists its steps, and does as the test orders."""

    def __init__(self, world: "World", config: HostingConfig, make_host: Any, quotas: Any, role: str = "") -> None:
        self.quotas = quotas
        self.name = config.cluster + role
        self.world = world
        self.host: ServiceHost = make_host(config=config, role="example", clock=world.clock)
        self.counter = prometheus_client.Counter("example", "Lives.", registry=self.host.registry)
        self.end = asyncio.Event()
        world.apps[self.name] = self
        world.steps.append(("make", self.name))

    async def open(self) -> None:
        self.world.opening.add(self.name)
        self.world.most_opening = max(self.world.most_opening, len(self.world.opening))
        await self.host.open_http()
        await self.host.connect()
        if self.name in self.world.bad:
            raise Corrupt(f"the journal of {self.name} is broken")
        if self.name in self.world.hanging:
            await asyncio.Event().wait()
        await self.world.may_open.wait()

    async def run(self) -> None:
        self.world.opening.discard(self.name)
        if self.name not in self.world.unready:
            self.host.health.set_ready(True)
        self.counter.inc()
        self.world.steps.append(("serve", self.name))
        await self.end.wait()
        raise ValueError(f"a bug in {self.name}")

    async def drain(self) -> None:
        self.world.steps.append(("drain", self.name))

    async def close(self) -> None:
        self.world.opening.discard(self.name)
        self.world.steps.append(("close", self.name))
        await self.host.disconnect()
        await self.host.close_http()


class World:
    """A hosting process over a memory bus and a memory store."""

    def __init__(
        self,
        clusters: str = "*",
        *,
        has_store: bool = True,
        limits: HostingLimits = LIMITS,
        make: Callable[..., App] = ClusterApp,
    ) -> None:
        self.has_store = has_store
        self.clock = SystemClock()
        self.hub, self.store = MemoryHub(), MemoryStore()
        self.registry = ClusterRegistry(self.store)
        self.apps: dict[str, ClusterApp] = {}
        self.steps: list[tuple[str, str]] = []
        self.bad: set[str] = set()
        self.hanging: set[str] = set()
        self.unready: set[str] = set()
        self.opening: set[str] = set()
        self.most_opening = 0
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.http: list[Http] = []
        self.bus = self.hub.connect("process")
        self.config = HostingConfig(clusters=clusters, instance="host")
        self.app = HostingApp(
            self.config,
            "example",
            HostedRole(make=partial(make, self), close=self._close),
            make_shared=partial(SharedHost, connect=self._connect, make_http=self._make_http),
            open_store=self._open_store,
            limits=limits,
        )
        self.running: asyncio.Task[None] | None = None

    async def _close(self) -> None:
        self.steps.append(("close", "process"))

    async def _connect(self, *_: Any, **__: Any) -> Any:
        return Connection(self.bus)

    def _make_http(self, *arguments: Any, **settings: Any) -> Http:
        self.http.append(Http(*arguments, **settings))
        return self.http[-1]

    async def _open_store(self, url: str, **_: Any) -> ObjectStore:
        if not self.has_store:
            raise Unavailable("no store")
        return self.store

    async def start(self) -> None:
        await self.app.open()
        self.running = asyncio.create_task(self.app.run())

    async def create(self, *names: str) -> None:
        for name in names:
            await self.registry.create(ClusterRecord(name=name, created_id=f"{name}-1", created_ms=1))

    async def change(self, name: str, **fields: Any) -> None:
        found = await self.registry.find(name)
        assert found is not None
        await self.registry.replace(found, msgspec.structs.replace(found.record, **fields))

    def state(self, name: str) -> str:
        return self.app.hosted[name].state if name in self.app.hosted else "none"

    def metrics(self) -> str:
        return prometheus_client.generate_latest(self.http[0].registry).decode()

    def report(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self.http[0].health.report())))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await end(made)


async def end(world: World) -> None:
    if world.running is not None:
        if not world.running.done():
            await asyncio.wait_for(world.app.drain(), TIMEOUT_S)
        world.running.cancel()
        await asyncio.wait({world.running})
    await world.app.close()


async def test_registered_clusters_are_served_and_a_deleted_one_is_drained_and_closed(world: World) -> None:
    await world.create("a")
    await world.start()
    await until(lambda: world.state("a") == "serving")
    await world.create("b")
    await until(lambda: world.state("b") == "serving")
    await world.change("a", state=ClusterState.DELETED)
    await until(lambda: world.state("a") == "none")
    assert 'cluster="a"' not in world.metrics()
    assert [step for step, name in world.steps if name == "a"] == ["make", "serve", "drain", "close"]
    assert [step for step, name in world.steps if name == "b"] == ["make", "serve"]
    await world.change("a", state=ClusterState.ACTIVE)
    await until(lambda: world.state("a") == "serving")
    assert 'example_total{cluster="a"} 1.0' in world.metrics()


async def test_an_app_sees_the_present_quotas_of_its_cluster(world: World) -> None:
    await world.create("a")
    await world.start()
    await until(lambda: world.state("a") == "serving")
    assert world.apps["a"].quotas().partitions == 0
    await world.change("a", quotas=ClusterQuotas(partitions=5))
    await until(lambda: world.apps["a"].quotas().partitions == 5)
    assert world.steps.count(("make", "a")) == 1


async def test_a_cluster_made_anew_under_its_name_gets_a_new_app(world: World) -> None:
    await world.create("a")
    await world.start()
    await until(lambda: world.state("a") == "serving")
    await world.change("a", created_id="a-2")
    await until(lambda: world.steps.count(("serve", "a")) == 2)
    assert world.steps.index(("close", "a")) < len(world.steps) - 1 - world.steps[::-1].index(("make", "a"))


async def test_a_cluster_that_fails_harms_no_other_and_starts_again(world: World) -> None:
    world.bad.add("bad")
    await world.create("bad", "good")
    await world.start()
    await until(lambda: world.state("good") == "serving" and world.steps.count(("make", "bad")) > 2)
    report = world.report()
    assert report["ready"] and "the journal of bad is broken" in report["degraded"]["bad: cluster"]
    assert list(report["clusters"]) == ["good"] or report["clusters"]["good"]["ready"]
    assert 'penstock_hosted_clusters{state="serving"} 1.0' in world.metrics()
    world.bad.clear()
    await until(lambda: world.state("bad") == "serving")
    assert world.report()["degraded"] == {}


async def test_a_bug_in_the_app_of_a_cluster_harms_no_other(world: World) -> None:
    await world.create("a", "b")
    await world.start()
    await until(lambda: world.state("a") == world.state("b") == "serving")
    world.apps["a"].end.set()
    await until(lambda: world.steps.count(("serve", "a")) == 2)
    assert world.steps.count(("make", "b")) == 1
    assert 'penstock_hosted_cluster_failures_total{cluster="a"} 1.0' in world.metrics()


async def test_only_a_few_clusters_start_at_the_same_time_and_then_the_process_is_ready(world: World) -> None:
    world.may_open.clear()
    await world.create(*(f"c{number}" for number in range(6)))
    await world.start()
    await until(lambda: len(world.opening) == 2)
    assert not world.http[0].health.is_ready
    world.may_open.set()
    await until(lambda: world.http[0].health.is_ready)
    assert world.most_opening == 2 and all(world.state(f"c{number}") == "serving" for number in range(6))


async def test_clusters_that_hang_while_they_start_do_not_block_the_others() -> None:
    world = World(limits=msgspec.structs.replace(LIMITS, start_s_max=0.01))
    world.hanging |= {"a", "b"}
    await world.create("a", "b", "c", "d")
    await world.start()
    await until(lambda: world.state("c") == world.state("d") == "serving")
    assert world.state("a") == world.state("b") == "starting"
    await end(world)


async def test_named_clusters_are_served_without_records_until_a_record_says_that_they_are_deleted() -> None:
    world = World("a, b")
    await world.create("other")
    await world.start()
    await until(lambda: world.state("a") == world.state("b") == "serving")
    assert world.state("other") == "none"
    deleted = ClusterRecord(name="a", created_id="1", created_ms=1, state=ClusterState.DELETED)
    await world.registry.create(deleted)
    await until(lambda: world.state("a") == "none")
    assert world.state("b") == "serving"
    await end(world)


async def test_the_end_of_the_shared_connection_ends_the_process(world: World) -> None:
    await world.create("a")
    await world.start()
    await until(lambda: world.state("a") == "serving")

    async def broken(message: Inbound) -> None:
        raise Unavailable("closed for good")

    await world.bus.subscribe("anything", broken)  # not as a cluster does it: on the connection of the process
    await world.bus.publish("anything", b"")
    assert world.running is not None
    with pytest.raises(ExceptionGroup, match="unhandled"):
        await asyncio.wait_for(world.running, TIMEOUT_S)
    assert not world.app.hosted


def two_roles(world: World, config: HostingConfig, make_host: HostMaker, quotas: Any) -> App:
    shared = make_host.shared("host", 2)
    return AgentApp(
        [(role, ClusterApp(world, config, shared.host_maker(role), quotas, f"/{role}")) for role in ("one", "two")]
    )


async def test_a_cluster_with_several_roles_is_served_when_all_of_them_are_ready_and_they_call_each_other() -> None:
    world = World(make=two_roles)
    world.unready.add("a/two")
    await world.create("a")
    await world.start()
    await until(lambda: ("serve", "a/two") in world.steps)
    assert world.state("a") == "starting" and not world.http[0].health.is_ready
    one, two = (world.apps[f"a/{role}"].host for role in ("one", "two"))
    two.health.set_ready(True)
    assert world.state("a") == "serving" and world.http[0].health.is_ready
    assert set(world.report()["clusters"]["a"]["roles"]) == {"one", "two"}
    assert 'example_total{cluster="a",role="one"} 1.0' in world.metrics()

    async def answer(message: Inbound) -> None:
        await message.respond(b"yes")

    await two.bus.subscribe("of.two", answer)
    assert one.bus.is_local("of.two") and await one.bus.request("of.two", b"", TIMEOUT_S) == b"yes"
    world.apps["a/one"].end.set()  # all roles of the cluster start again
    await until(lambda: world.steps.count(("serve", "a/two")) == 2)
    await end(world)


async def test_what_all_clusters_share_is_closed_after_all_of_them() -> None:
    world = World()
    await world.create("a", "b")
    await world.start()
    await until(lambda: world.state("a") == world.state("b") == "serving")
    await end(world)
    assert [name for step, name in world.steps if step == "close"][2:] == ["process"]


async def test_a_process_whose_store_does_not_answer_does_not_start() -> None:
    world = World(has_store=False)
    with pytest.raises(Unavailable):
        await world.app.open()
    await end(world)


def test_names_of_clusters_are_checked_and_each_counts_once() -> None:
    assert HostingConfig(clusters="a, b,a").cluster_names == ["a", "b"]
    for bad in ("a,", "*,a", "a b"):
        with pytest.raises(Invalid, match="each name in clusters"):
            HostingConfig(clusters=bad)


def test_a_landing_store_is_the_own_one_of_each_cluster() -> None:
    argv = ["--store-url", "s3://bucket?landing=jetstream:", "--clusters", "*"]
    config = read_config(HostingConfig, argv, {}, program="example")
    assert config.store_url.endswith("landing=jetstream:")
    assert "127.0.0.1%3A4222%2Fa" in for_cluster(config, "a").store_url
