"""Health, readiness and metrics over HTTP."""

import gc
import socket
from collections.abc import AsyncIterator

import aiohttp
import prometheus_client
import pytest

from penstock.contracts.errors import Invalid
from penstock.runtime.process.health import Health, HttpServer, new_registry
from tests.testkit.metrics import samples


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def server(health: Health) -> AsyncIterator[HttpServer]:
    registry = new_registry()
    prometheus_client.Counter("penstock_example", "An example.", registry=registry).inc(3)
    made = HttpServer(health, registry, "127.0.0.1", 0)
    await made.open()
    yield made
    await made.close()


async def get(server: HttpServer, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{server.address}{path}") as answer:
        return answer.status, answer.content_type, await answer.text()


async def test_a_process_that_starts_lives_but_is_not_ready(server: HttpServer) -> None:
    assert await get(server, "/health") == (
        200,
        "application/json",
        '{"ready": false, "reason": "starting", "degraded": {}}',
    )
    assert (await get(server, "/ready"))[0] == 503


@pytest.mark.parametrize("host", ["nowhere.invalid", "two..dots"])
async def test_a_host_that_does_not_exist_is_rejected_in_words(host: str, health: Health) -> None:
    with pytest.raises(Invalid, match=rf"cannot listen on {host}:0 for health and metrics: (?!Unknown)\w") as rejected:
        await HttpServer(health, new_registry(), host, 0).open()
    assert "\n" not in str(rejected.value)


async def test_readiness_changes_with_its_reason(server: HttpServer, health: Health) -> None:
    health.set_ready(True)
    assert health.is_ready
    assert (await get(server, "/ready"))[0] == 200
    health.set_ready(False, "no sequencer")
    status, _kind, text = await get(server, "/ready")
    assert (status, "no sequencer" in text) == (503, True)


async def test_a_degraded_process_is_still_ready_and_reports_its_problem(server: HttpServer, health: Health) -> None:
    health.set_ready(True)
    health.set_degraded("cache", "no cacher in this zone")
    status, _kind, text = await get(server, "/ready")
    assert (status, '"degraded": {"cache": "no cacher in this zone"}' in text) == (200, True)
    health.set_degraded("cache", "")
    assert '"degraded": {}' in (await get(server, "/ready"))[2]


async def test_metrics_are_prometheus_text_and_include_those_of_the_process_itself(server: HttpServer) -> None:
    status, kind, text = await get(server, "/metrics")
    assert (status, kind) == (200, "text/plain")
    assert "penstock_example_total 3.0" in text
    assert "process_cpu_seconds_total" in text


async def test_an_address_in_use_is_reported_in_one_sentence(health: Health) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = HttpServer(health, new_registry(), "127.0.0.1", port)
        with pytest.raises(Invalid, match=f"cannot listen on 127.0.0.1:{port} for health and metrics: Address already"):
            await server.open()
        await server.close()


async def test_a_closed_server_can_be_closed_again(server: HttpServer) -> None:
    address = server.address
    await server.close()
    await server.close()
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://{address}/health")


async def test_a_degraded_process_has_a_metric_by_reason_until_the_problem_ends(
    server: HttpServer, health: Health
) -> None:
    sample = 'penstock_degraded{reason="cache"} 1.0'
    assert sample not in (await get(server, "/metrics"))[2]
    health.set_degraded("cache", "no cacher in this zone")
    assert sample in (await get(server, "/metrics"))[2]
    health.set_degraded("cache", "")
    assert sample not in (await get(server, "/metrics"))[2]


async def test_blocks_in_use_follow_the_objects_of_the_process(server: HttpServer) -> None:
    gc.collect()  # else a collection between the two may free the objects of other tests
    before = samples((await get(server, "/metrics"))[2])["penstock_memory_blocks"]
    kept = [object() for _ in range(100_000)]
    assert samples((await get(server, "/metrics"))[2])["penstock_memory_blocks"] > before + len(kept) // 2
