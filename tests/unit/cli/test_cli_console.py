"""The console shows services that work, that do not work, and that work with a problem."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from penstock.cli.children import Child, ChildSpec
from penstock.cli.ports import Address
from penstock.cli.up.console import HELPERS, ROLES, Console
from penstock.cli.up.disk import shortage
from penstock.contracts.messages import Presence
from penstock.runtime.bus.presence import Directory
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.health import Health, HttpServer, new_registry
from penstock.runtime.process.shared_host import SharedHost
from tests.testkit.servers.backend import LOOPBACK
from tests.testkit.servers.ports import free_ports

REASON = "its <server> acknowledges too soon"


class Rig:
    """One instance of each service and helper, as far as the console sees it."""

    def __init__(self, data: Path, token_file: str = "") -> None:
        self.free_bytes_min = 0
        self.gone: set[str] = set()
        self.children: list[Child] = []
        self.agents: dict[str, Presence] = {}  # by role, instead of a process of its own
        self.health = {role: Health() for role in (*ROLES, *HELPERS)}
        self._servers = {
            role: HttpServer(health, new_registry(), LOOPBACK, 0, token_file=token_file)
            for role, health in self.health.items()
        }
        [port] = free_ports(1)
        self._console = Console(
            Address(LOOPBACK, port),
            cast(Directory, self),
            lambda: self.children,
            lambda: shortage(data, self.free_bytes_min),
            token_file=token_file,
        )
        self._url = f"http://{LOOPBACK}:{port}"

    def live(self, role: str) -> list[Presence]:
        if role in self.agents:
            return [self.agents[role]]
        return [] if role in self.gone else [Presence(role, "z", f"{role}-1", "0", http=self._servers[role].address)]

    async def open(self) -> None:
        for health in self.health.values():
            health.set_ready(True)
        for server in self._servers.values():
            await server.open()
        await self._console.open()

    async def close(self) -> None:
        await self._console.close()
        for server in self._servers.values():
            await server.close()

    async def page(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession() as client, client.get(self._url + path, headers=headers) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_without_problems_nothing_is_reported_as_degraded(rig: Rig) -> None:
    status, text = await rig.page("/health")
    facts = json.loads(text)
    assert (status, facts["ready"], facts["degraded"]) == (200, True, [])
    assert "degraded" not in (await rig.page("/"))[1]


async def test_a_problem_is_reported_with_its_instance_and_does_not_end_readiness(rig: Rig) -> None:
    rig.health["sequencer"].set_degraded("journal", REASON)
    status, text = await rig.page("/health")
    wrong = {"service": "sequencer", "instance": "sequencer-1", "name": "journal", "reason": REASON}
    assert (status, json.loads(text)["degraded"]) == (200, [wrong])
    assert (await rig.page("/ready"))[0] == 200
    page = (await rig.page("/"))[1]
    assert "sequencer-1 is degraded: its &lt;server&gt; acknowledges too soon" in page
    assert (
        'penstock_degraded{instance="sequencer-1",reason="journal",service="sequencer",zone="z"} 1.0'
        in (await rig.page("/metrics"))[1]
    )


async def test_a_process_with_several_roles_is_one_process_with_a_health_for_each(rig: Rig) -> None:
    shared = SharedHost("agent-1")
    roles = ("gateway", "flusher")
    hosts = {role: shared.host_maker(role)(an_agent(role), role, SystemClock()) for role in roles}
    for host in hosts.values():
        await host.open_http()
    try:
        rig.agents = {role: Presence(role, "z", f"agent-1-{role}", "0", http=shared.http_address) for role in roles}
        hosts["gateway"].health.set_ready(True)
        hosts["flusher"].health.set_degraded("journal", REASON)
        status, text = await rig.page("/health")
        facts = json.loads(text)
        assert (status, facts["waiting"]) == (503, ["agent-1-flusher is not ready: starting"])
        wrong = {"service": "flusher", "instance": "agent-1-flusher", "name": "journal", "reason": REASON}
        assert facts["degraded"] == [wrong]
        metrics = (await rig.page("/metrics"))[1].splitlines()
        [blocks] = [line for line in metrics if line.startswith("penstock_memory_blocks{") and "agent-1" in line]
        assert blocks.startswith('penstock_memory_blocks{instance="agent-1",service="agent",zone="z"}')
    finally:
        for host in hosts.values():
            await host.close_http()


async def test_metrics_name_the_process_as_before_it_started_again(rig: Rig, tmp_path: Path) -> None:
    [flusher] = rig.live("flusher")
    child = Child(ChildSpec("flusher-2", [], {}, tmp_path / "log", ("flusher",)), str)
    rig.children = [child]
    for child.instance in ("flusher-2-0a1b", "flusher-2-2c3d"):
        rig.agents = {"flusher": Presence("flusher", "z", child.instance, "0", http=flusher.http)}
        metrics = (await rig.page("/metrics"))[1]
        assert 'penstock_memory_blocks{instance="flusher-2",service="flusher",zone="z"}' in metrics
        assert 'penstock_memory_blocks{instance="cacher-1",service="cacher",zone="z"}' in metrics


def an_agent(role: str) -> ServiceConfig:
    return ServiceConfig(instance=f"agent-1-{role}")


async def test_readiness_does_not_wait_for_helpers(rig: Rig) -> None:
    rig.health["compactor"].set_ready(False, "starting")
    status, text = await rig.page("/health")
    assert status == 200
    assert json.loads(text)["instances"]["compactor"] == 1


async def test_one_service_that_is_not_ready_ends_readiness_with_its_reason(rig: Rig) -> None:
    rig.health["flusher"].set_ready(False, "starting")
    status, text = await rig.page("/ready")
    assert (status, json.loads(text)["waiting"]) == (503, ["flusher-1 is not ready: starting"])
    page = (await rig.page("/"))[1]
    assert 'Penstock <span class="bad">is not ready</span>' in page
    assert '<p class="bad">flusher-1 is not ready: starting</p>' in page


async def test_a_missing_service_is_named(rig: Rig) -> None:
    rig.gone = {"cacher", "janitor"}
    status, text = await rig.page("/health")
    assert (status, json.loads(text)["waiting"]) == (503, ["there is no cacher"])


async def test_each_service_has_links_to_its_own_pages(rig: Rig) -> None:
    [gateway] = rig.live("gateway")
    page = (await rig.page("/"))[1]
    assert f'<a href="http://{gateway.http}/health">' in page
    assert f'<a href="http://{gateway.http}/metrics">' in page


async def test_a_disk_with_little_free_space_is_reported_before_it_is_full(rig: Rig, tmp_path: Path) -> None:
    rig.free_bytes_min = 2**80
    status, text = await rig.page("/health")
    [wrong] = json.loads(text)["degraded"]
    assert (status, wrong["service"], wrong["name"]) == (200, "up", "disk")
    assert wrong["reason"].endswith(f"MiB are free under {tmp_path}; on a full disk nothing is acknowledged")
    page = (await rig.page("/"))[1]
    assert "up is degraded: " in page
    assert wrong["reason"].partition(" MiB")[2] in page  # other programs change the free space meanwhile


async def test_with_a_token_only_the_health_is_open_and_the_metrics_of_all_services_come_with_it(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    rig = Rig(tmp_path, str(token))
    await rig.open()
    try:
        for path in ("/", "/metrics", "/processes"):
            assert (await rig.page(path))[0] == 401
            assert (await rig.page(path, "0123456789abcdeX"))[0] == 401
            assert (await rig.page(path, token.read_text()))[0] == 200
        for path in ("/health", "/ready"):
            assert (await rig.page(path))[0] == 200
        metrics = (await rig.page("/metrics", token.read_text()))[1]
        assert all(f'service="{role}"' in metrics for role in (*ROLES, *HELPERS))
    finally:
        await rig.close()
