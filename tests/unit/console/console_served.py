"""A console's web server over a state machine, with a client, and a cluster whose texts are all hostile."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock_console.openid.flow import CodeFlow
from penstock_console.openid.issuer import Issuer
from penstock_console.web.logins import LoginLimits, Logins
from penstock_console.web.server import WebServer
from tests.testkit.fakes.virtual_time import CountingEntropy
from tests.unit.console.console_fakes import FakeRecord
from tests.unit.console.console_rig import Rig
from tests.unit.console.console_security_fakes import add_bindings, add_user
from tests.unit.sequencer.core.core_world import START_MS, batch

LOOPBACK = "127.0.0.1"
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SCRIPT = "<script>alert(1)</script>"
BINDING = AclBinding(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.DENY
)


class Answer:
    """An answer that was read to its end."""

    def __init__(self, answer: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.cookies = answer.cookies
        self.text = body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class Served:
    """A web server over a state machine, and a client without cookies."""

    def __init__(self, rig: Rig, server: WebServer, logins: Logins, client: aiohttp.ClientSession) -> None:
        self.rig = rig
        self.logins = logins
        self.address = server.address
        self._client = client

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.send("GET", path, **more)

    async def post(self, path: str, **more: Any) -> Answer:
        return await self.send("POST", path, **more)

    async def send(self, method: str, path: str, **more: Any) -> Answer:
        """The answer; each has the headers of security."""
        url = URL(f"http://{self.address}{path}", encoded=True)
        async with self._client.request(method, url, allow_redirects=False, **more) as answer:
            found = Answer(answer, await answer.read())
        assert {name: found.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS, (method, path)
        return found


@asynccontextmanager
async def served(
    rig: Rig | None = None,
    *,
    host_names: tuple[str, ...] = (),
    has_secure_cookies: bool = False,
    issuer: Issuer | None = None,
    session_s: float = 100,
) -> AsyncIterator[Served]:
    rig = rig or Rig()
    logins = Logins(rig.kafka, rig.clock, CountingEntropy(), issuer=issuer, limits=LoginLimits(session_s=session_s))
    server = WebServer(
        rig.sources,
        logins,
        host=LOOPBACK,
        port=0,
        version="0.1.0",
        host_names=host_names,
        has_secure_cookies=has_secure_cookies,
        flow=None if issuer is None else CodeFlow(issuer, rig.clock, CountingEntropy()),
    )
    await server.open()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
            yield Served(rig, server, logins, client)
    finally:
        await server.close()
        await rig.kafka.close()


def full_rig(**more: Any) -> Rig:
    """A cluster with a topic, a group and an open transaction; all texts in it are hostile."""
    rig = Rig(**more)
    rig.world.transactions.begin()
    rig.world.produce(batch(3, timestamp=START_MS))
    rig.world.commit_offset(1)
    rig.kafka.session.records = [
        FakeRecord(offset=number, value=SCRIPT.encode(), key=None, headers=[(SCRIPT, b"\xff")]) for number in range(3)
    ]
    writer = rig.world.transactions.init("tx")
    rig.world.transactions.add(writer)
    for name in (SCRIPT, "bob"):
        add_user(rig.world, name)
    add_bindings(rig.world, BINDING, msgspec.structs.replace(BINDING, name=SCRIPT))
    return rig
