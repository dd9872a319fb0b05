"""The first reading waits until all processes can have announced themselves; no answer of a stranger ends it."""

from typing import cast

import aiohttp
import pytest
from aiohttp import web

from penstock.contracts.messages import Presence
from penstock.runtime.bus.presence import Directory
from penstock.runtime.clock import SystemClock
from penstock_console.survey.processes import NEEDED_ROLES, ProcessLimits, ProcessWatch
from tests.testkit.servers.ports import free_ports


class LateDirectory:
    """Hears the sequencer only after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        [self._port] = free_ports(1)

    def live(self, role: str) -> list[Presence]:
        if role not in NEEDED_ROLES:
            return []
        if role == "sequencer":
            self.looks -= 1
            if self.looks > 0:
                return []
        return [Presence(role, "z", f"{role}-1", "0", http=f"127.0.0.1:{self._port}")]


async def roles_read(directory: LateDirectory, limits: ProcessLimits) -> list[set[str]]:
    async with aiohttp.ClientSession() as client:
        watch = ProcessWatch(cast(Directory, directory), client, SystemClock(), limits=limits)
        readings = [await watch.read() for _ in range(2)]
    return [{each.presence.role for each in reading.processes} for reading in readings]


async def test_a_service_that_is_heard_a_moment_later_is_not_missing() -> None:
    directory = LateDirectory(5)
    found = await roles_read(directory, ProcessLimits(first_s=60.0, look_s=0.001))
    assert found == [set(NEEDED_ROLES)] * 2


async def test_only_the_first_reading_waits_and_not_for_ever() -> None:
    directory = LateDirectory(1_000_000)
    found = await roles_read(directory, ProcessLimits(first_s=0.01, look_s=0.001))
    assert found == [set(NEEDED_ROLES) - {"sequencer"}] * 2


class OneGateway:
    """A directory with a gateway at this address."""

    def __init__(self, http: str) -> None:
        self._http = http

    def live(self, role: str) -> list[Presence]:
        return [Presence(role, "z", "gateway-1", "0", http=self._http)] if role == "gateway" else []


@pytest.mark.parametrize("body", [b"Not Found", b"<html></html>", b"{", b"a{", b"a 1\nb", b"\xff\xfe", b"[]", b"{}"])
async def test_another_server_at_the_address_of_a_process_has_no_metrics(body: bytes) -> None:
    """Its port may be taken before the process is gone from the list. An error here would end the console."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/{path}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        async with aiohttp.ClientSession() as client:
            directory = cast(Directory, OneGateway(f"{host}:{port}"))
            limits = ProcessLimits(first_s=0.01, look_s=0.001)
            [found] = (await ProcessWatch(directory, client, SystemClock(), limits=limits).read()).processes
    finally:
        await runner.cleanup()
    assert (found.samples, found.report["ready"]) == ({}, False)
