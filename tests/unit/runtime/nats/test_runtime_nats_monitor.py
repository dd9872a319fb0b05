"""The report from a nats-server's monitoring, and the wait when not every server answers."""

import asyncio
import json
from collections.abc import Awaitable

import pytest
from aiohttp import web

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.nats.monitor import ServerReport, ask_server, ask_servers, parse_varz

URL = "http://n1:8222"
SYNCING = {"config": {"sync_interval": 120_000_000_000, "sync_always": True}, "stats": {}}
LAZY = {"config": {"sync_interval": 120_000_000_000}, "stats": {}}
CLUSTERED = {**SYNCING, "meta": {"name": "penstock", "leader": "n2", "cluster_size": 3}}


def varz(jetstream: object, **more: object) -> bytes:
    return json.dumps(
        {"server_id": "ID", "server_name": "n1", "version": "2.15.1", "jetstream": jetstream, **more}
    ).encode()


@pytest.mark.parametrize(
    ("jetstream", "report"),
    [
        (SYNCING, ServerReport("ID", "2.15.1", True, True, 1)),
        (LAZY, ServerReport("ID", "2.15.1", True, False, 1)),
        (CLUSTERED, ServerReport("ID", "2.15.1", True, True, 3)),
        ({}, ServerReport("ID", "2.15.1", False, False, 1)),
    ],
    ids=["syncing", "lazy", "clustered", "without jetstream"],
)
def test_a_report_has_the_settings_that_safety_depends_on(jetstream: object, report: ServerReport) -> None:
    assert parse_varz(URL, varz(jetstream)) == report


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"{}", b'{"version": "2.15.1"}'])
def test_an_answer_that_is_not_from_a_nats_server_is_rejected_with_its_address(data: bytes) -> None:
    with pytest.raises(Invalid, match="http://n1:8222 is not the monitoring address of a nats-server"):
        parse_varz(URL, data)


async def answering(status: int, data: bytes) -> tuple[web.AppRunner, str]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=data)

    app = web.Application()
    app.add_routes([web.get("/varz", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


async def test_a_server_is_asked_over_http() -> None:
    runner, url = await answering(200, varz(SYNCING))
    assert (await ask_server(f"{url}/")).syncs_always
    await runner.cleanup()


async def test_a_server_that_fails_or_is_not_there_may_answer_later() -> None:
    runner, url = await answering(503, b"starting")
    with pytest.raises(Unavailable, match="answers with status 503"):
        await ask_server(url)
    await runner.cleanup()
    with pytest.raises(Unavailable, match="does not answer"):
        await ask_server(url)


class Servers:
    """Servers by URL: each answers after so many failures, or hangs (None)."""

    def __init__(self, **failures: int | None) -> None:
        self._failures = dict(failures)
        self.urls = list(failures)

    async def _ask(self, url: str) -> ServerReport:
        left = self._failures[url]
        if left is None:
            await asyncio.Event().wait()
        elif left:
            self._failures[url] = left - 1
            raise Unavailable(f"{url} does not answer")
        return ServerReport(url, "2.15.1", True, True, 3)

    def ask(self, deadline_s: float = 60.0, grace_s: float = 0.02) -> Awaitable[dict[str, ServerReport]]:
        return ask_servers(self.urls, deadline_s, self._ask, grace_s)


async def test_a_server_that_starts_is_asked_again() -> None:
    assert list(await Servers(a=2).ask()) == ["a"]


async def test_a_hanging_minority_delays_no_start() -> None:
    assert list(await Servers(a=0, b=None, c=0).ask()) == ["a", "c"]


async def test_all_servers_that_answer_soon_are_included() -> None:
    assert list(await Servers(a=0, b=1, c=0).ask(grace_s=60.0)) == ["a", "b", "c"]


async def test_without_a_majority_nothing_is_known() -> None:
    with pytest.raises(Unavailable, match=r"the monitoring of nats at b, c did not answer within 0\.5 s"):
        await Servers(a=0, b=None, c=None).ask(deadline_s=0.5)


async def test_an_address_that_is_no_nats_server_is_reported_at_once() -> None:
    async def ask(url: str) -> ServerReport:
        raise Invalid(f"{url} is not the monitoring address of a nats-server")

    with pytest.raises(Invalid, match="a is not the monitoring"):
        await ask_servers(["a"], 5.0, ask)
