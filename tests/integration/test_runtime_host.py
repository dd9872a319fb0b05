"""The host of every service, over a real nats-server: presence, readiness, drain and close."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import Presence
from penstock.contracts.subjects import Sender
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.bus.presence import PresenceLimits
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import NatsLimits
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.host import HostLimits, ServiceHost
from penstock.version import VERSION
from tests.testkit.servers.connections import SLOW_MACHINE, SLOW_MACHINE_HOST
from tests.testkit.servers.nats import NatsServer, running_nats_server
from tests.testkit.waiting import until


def a_host(
    server: NatsServer,
    instance: str,
    role: str,
    *,
    load_bytes: int = 0,
    limits: HostLimits = SLOW_MACHINE_HOST,
) -> ServiceHost:
    config = ServiceConfig(instance=instance, nats_url=server.url, nats_user="who", nats_password="what")

    def complete(own: Presence) -> Presence:
        return msgspec.structs.replace(own, load_bytes=load_bytes)

    return ServiceHost(config, role, SystemClock(), complete=complete, limits=limits)


@contextlib.asynccontextmanager
async def at_work(host: ServiceHost) -> AsyncIterator[None]:
    """Run the host, announced, until the end of the block."""
    await host.open_http()
    await host.connect()
    await host.listen()
    await host.bus.flush()
    work = asyncio.create_task(run(host))
    try:
        yield
        assert not work.done(), work.exception()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await host.disconnect()
        await host.close_http()


async def run(host: ServiceHost) -> None:
    async with asyncio.TaskGroup() as group:
        host.start(group)


async def readiness(address: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{address}/ready") as answer:
        return answer.status, (await answer.json())["reason"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_nats_server(tmp_path, user="who", password="what") as made:
        yield made


async def test_a_started_host_is_announced_with_the_fields_of_its_service(server: NatsServer) -> None:
    watcher, flusher = a_host(server, "g1", "gateway"), a_host(server, "f1", "flusher", load_bytes=7)
    async with at_work(watcher), at_work(flusher):
        await until(lambda: watcher.directory.live("flusher"))
        (heard,) = watcher.directory.live("flusher")
        assert 0 < heard.started_ms <= SystemClock().now_ms()
        announced = Presence("flusher", "z1", "f1", VERSION, http=heard.http, load_bytes=7, started_ms=heard.started_ms)
        assert heard == announced
        assert await readiness(heard.http) == (503, "starting")
        flusher.health.set_ready(True)
        assert await readiness(heard.http) == (200, "")


async def test_a_host_announces_the_newest_entry_that_its_service_has_seen(server: NatsServer) -> None:
    watcher, flusher = a_host(server, "g1", "gateway"), a_host(server, "f1", "flusher")
    async with at_work(watcher), at_work(flusher):
        flusher.sequencers(Sender.FLUSHER).record_sequence(7)
        await flusher.announcer.announce()
        await until(lambda: [each.seen_sequence for each in watcher.directory.live("flusher")] == [7])
        await watcher.announcer.announce()
        await until(lambda: flusher.directory.get("g1"))
        assert [each.seen_sequence for each in flusher.directory.live("gateway")] == [0]


async def test_a_host_that_was_not_started_sends_no_presence(server: NatsServer) -> None:
    watcher, silent = a_host(server, "g1", "gateway"), a_host(server, "s1", "sequencer")
    async with at_work(watcher):
        await silent.open_http()
        await silent.connect()
        await silent.bus.flush()
        await watcher.bus.flush()
        assert watcher.directory.get("s1") is None
        await silent.announcer.announce()
        await until(lambda: watcher.directory.get("s1"))
        assert silent.directory.get("g1") is None, "a host that does not listen knows no other"
        await silent.disconnect()
        await silent.close_http()


async def test_hosts_announce_themselves_at_once_to_a_new_one(server: NatsServer) -> None:
    # Longer than the test, so that the regular announcement does not help.
    limits = HostLimits(nats=SLOW_MACHINE, presence=PresenceLimits(announce_interval_ms=60_000))
    watcher, flusher = (
        a_host(server, "g1", "gateway", limits=limits),
        a_host(server, "f1", "flusher", limits=limits),
    )
    async with at_work(flusher):
        await until(lambda: flusher.directory.get("f1"))
        async with at_work(watcher):
            await until(lambda: watcher.directory.live("flusher"))


async def test_a_host_that_drains_is_not_ready_and_takes_no_work(server: NatsServer) -> None:
    watcher, flusher = a_host(server, "g1", "gateway"), a_host(server, "f1", "flusher")
    async with at_work(watcher), at_work(flusher):
        flusher.health.set_ready(True)
        await until(lambda: watcher.directory.live("flusher"))
        await flusher.begin_drain()
        assert flusher.health.report()["reason"] == "draining"
        await until(lambda: not watcher.directory.live("flusher"))
        left = watcher.directory.get("f1")
        assert left is not None
        assert left.leaving


async def test_a_failing_handler_ends_the_tasks_of_the_host(server: NatsServer) -> None:
    async def fail(_message: Inbound) -> None:
        raise ValueError("a bug in a handler")

    host = a_host(server, "f1", "flusher")
    await host.open_http()
    bus = await host.connect()
    await bus.subscribe("broken", fail)
    await bus.publish("broken", b"")
    with pytest.raises(ExceptionGroup) as caught:
        await run(host)
    assert caught.group_contains(ValueError, match="a bug in a handler")
    await host.disconnect()
    await host.close_http()


async def test_a_host_without_a_server_can_still_be_closed(server: NatsServer) -> None:
    server.kill()
    host = a_host(server, "f1", "flusher", limits=HostLimits(nats=NatsLimits(connect_deadline_s=0.3)))
    await host.open_http()
    with pytest.raises(Unavailable, match="no nats server at"):
        await host.connect()
    await host.disconnect()
    await host.close_http()


async def test_a_host_that_never_opened_can_be_closed(server: NatsServer) -> None:
    host = a_host(server, "f1", "flusher")
    await host.disconnect()
    await host.close_http()
    assert not host.health.is_ready
