"""The address of `penstock up` has the console's pages; the first request starts the console."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from penstock.cli.ports import Address
from penstock.cli.up.console import Console
from penstock.cli.up.console_proxy import ConsoleProxy, ProxyLimits
from penstock.contracts.messages import Presence
from penstock.runtime.bus.presence import Directory
from tests.testkit.servers.backend import LOOPBACK
from tests.testkit.servers.ports import free_ports

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PATIENT = ProxyLimits(start_s=60.0, retry_s=0.01)
IMPATIENT = ProxyLimits(start_s=0.0)
SLOW_START = ProxyLimits(start_s=0.0, start_s_max=60.0, retry_s=0.01)


class NoServices:
    """A directory of a cluster that has just begun to start."""

    def live(self, role: str) -> list[Presence]:
        return []


class Rig:
    """The web server of `penstock up`, and the console behind it."""

    def __init__(self, handler: Handler | None, limits: ProxyLimits, *, is_secure: bool = False) -> None:
        """The console begins to listen when it is wanted, and never without a `handler`."""
        own_port, self._port = free_ports(2)
        proxy = ConsoleProxy(self._port, self._start, limits=limits)
        self._server = Console(
            Address(LOOPBACK, own_port),
            cast(Directory, NoServices()),
            list,
            lambda: "",
            proxy=proxy,
            is_secure=is_secure,
        )
        self._handler = handler
        self._starting: asyncio.Task[web.AppRunner] | None = None
        self.url = f"http://{LOOPBACK}:{own_port}"
        self.client: aiohttp.ClientSession

    def _start(self) -> bool:
        if self._handler is not None and self._starting is None:
            self._starting = asyncio.create_task(self._listen(self._handler))
        return self._handler is not None

    async def _listen(self, handler: Handler) -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.route("*", "/{path:.*}", handler)])
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, self._port).start()
        return runner

    async def open(self) -> None:
        await self._server.open()
        self.client = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        await self.client.close()
        await self._server.close()
        if self._starting is not None:
            await (await self._starting).cleanup()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(URL(self.url + path, encoded=True)) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def opened(
    handler: Handler | None, limits: ProxyLimits = PATIENT, *, is_secure: bool = False
) -> AsyncIterator[Rig]:
    rig = Rig(handler, limits, is_secure=is_secure)
    await rig.open()
    try:
        yield rig
    finally:
        await rig.close()


async def name_path(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.method} {request.raw_path}", headers={"X-Of": "console"})


@pytest.mark.parametrize("path", ["/topics", "/api/v1/groups?page=2", "/static/console.css", "/groups/a%2Fb%25"])
async def test_a_request_waits_for_the_console_that_it_starts(path: str) -> None:
    async with opened(name_path) as rig:
        assert await rig.get(path) == (200, f"GET {path}")


async def test_a_request_waits_longer_for_a_console_whose_process_runs() -> None:
    async with opened(name_path, SLOW_START) as rig:
        assert await rig.get("/topics") == (200, "GET /topics")


async def test_the_first_page_shows_the_processes_while_the_console_starts() -> None:
    async with opened(name_path) as rig:
        status, text = await rig.get("/")
        assert (status, "there is no gateway" in text) == (200, True)
        await rig.get("/topics")
        assert await rig.get("/") == (200, "GET /")


async def test_a_console_that_asks_for_logins_has_no_page_without_one() -> None:
    async with opened(name_path, is_secure=True) as rig:
        assert await rig.get("/") == (200, "GET /")
    async with opened(None, IMPATIENT, is_secure=True) as rig:
        assert await rig.get("/") == (503, "the console does not run yet: try again, or read its log\n")


async def test_a_console_that_does_not_start_is_an_error_of_all_pages_but_the_first() -> None:
    async with opened(None, IMPATIENT) as rig:
        assert (await rig.get("/"))[0] == 200
        assert await rig.get("/api/v1/topics") == (503, "the console does not run yet: try again, or read its log\n")
        async with rig.client.post(f"{rig.url}/") as answer:
            assert answer.status == 503


async def test_a_request_and_its_answer_are_passed_on_whole() -> None:
    seen: list[tuple[str, str, bytes, dict[str, str]]] = []

    async def redirect(request: web.Request) -> web.Response:
        seen.append((request.method, request.raw_path, await request.read(), dict(request.headers)))
        raise web.HTTPSeeOther("/topics?done=1", headers={"Set-Cookie": "penstock_session=t"})

    async with opened(redirect) as rig:
        given = {"Host": "penstock.test:8080", "Cookie": "a=b", "Sec-Fetch-Site": "same-origin", "Connection": "close"}
        async with rig.client.post(
            f"{rig.url}/topics?a=b", data=b"name=t", headers=given, allow_redirects=False
        ) as answer:
            found = (answer.status, answer.headers["Location"], answer.cookies["penstock_session"].value)
    assert found == (303, "/topics?done=1", "t")
    [(method, path, body, headers)] = seen
    assert (method, path, body) == ("POST", "/topics?a=b", b"name=t")
    assert {name: headers[name] for name in ("Host", "Cookie", "Sec-Fetch-Site")} == {
        name: given[name] for name in ("Host", "Cookie", "Sec-Fetch-Site")
    }


async def test_events_come_one_by_one() -> None:
    was_read = asyncio.Event()

    async def tail(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await was_read.wait()
        await response.write(b"event: end\n\n")
        return response

    async with opened(tail) as rig, rig.client.get(f"{rig.url}/topics/t/tail") as answer:
        assert await answer.content.readuntil(b"\n\n") == b"data: 1\n\n"
        was_read.set()
        assert await answer.content.read() == b"event: end\n\n"


async def test_a_console_that_ends_in_a_request_is_a_bad_gateway() -> None:
    async def end(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with opened(end) as rig:
        status, text = await rig.get("/topics")
        assert (status, text.startswith("the console does not answer: ")) == (502, True)
