"""The settings of a nats-server that the journal's safety depends on, read from its monitoring port (`/varz`)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
import msgspec

from penstock.contracts.errors import Invalid, Unavailable

ASK_TIMEOUT_S = 2.0
ASK_AGAIN_S = 0.2
# The wait for the other servers after a majority has answered. A server that hangs must not delay every start.
STRAGGLER_GRACE_S = 1.0


class ServerReport(msgspec.Struct, frozen=True):
    """The facts that one server reports about itself."""

    server_id: str  # new after each start of the server
    version: str
    has_jetstream: bool
    syncs_always: bool  # an entry is on the disk before it is acknowledged
    cluster_size: int  # the number of servers that share JetStream, this one included


class _Settings(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _Meta(msgspec.Struct, frozen=True):
    cluster_size: int = 1


class _Jetstream(msgspec.Struct, frozen=True):
    config: _Settings | None = None
    meta: _Meta = _Meta()


class _Varz(msgspec.Struct, frozen=True):
    server_id: str
    version: str
    jetstream: _Jetstream = _Jetstream()


Ask = Callable[[str], Awaitable[ServerReport]]


def parse_varz(url: str, data: bytes) -> ServerReport:
    """The report in a server's answer; `Invalid` if it is not the answer of a nats-server."""
    try:
        varz = msgspec.json.decode(data, type=_Varz)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Invalid(f"{url} is not the monitoring address of a nats-server: {error}") from error
    settings = varz.jetstream.config
    return ServerReport(
        varz.server_id,
        varz.version,
        settings is not None,
        settings is not None and settings.sync_always,
        varz.jetstream.meta.cluster_size,
    )


async def ask_server(url: str) -> ServerReport:
    """Ask the server at `http://host:port`; `Unavailable` if it does not answer, `Invalid` if it is no nats-server."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)) as client,
            client.get(f"{url.rstrip('/')}/varz") as answer,
        ):
            data = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(f"{url} does not answer: {error or type(error).__name__}") from error
    if answer.status != 200:
        raise Unavailable(f"{url} answers with status {answer.status}")
    return parse_varz(url, data)


async def ask_servers(
    urls: Sequence[str], deadline_s: float, ask: Ask = ask_server, grace_s: float = STRAGGLER_GRACE_S
) -> dict[str, ServerReport]:
    """The reports by URL of all servers that answer; `Unavailable` unless a majority answers within `deadline_s`."""
    asking = {url: asyncio.create_task(_ask_until_answered(url, ask)) for url in urls}
    try:
        await _until_done(list(asking.values()), len(urls) // 2 + 1, deadline_s)
        await asyncio.wait(asking.values(), timeout=grace_s)
        return {url: task.result() for url, task in asking.items() if task.done()}
    except TimeoutError as error:
        silent = ", ".join(url for url, task in asking.items() if not task.done())
        raise Unavailable(f"the monitoring of nats at {silent} did not answer within {deadline_s:g} s") from error
    finally:
        for task in asking.values():
            task.cancel()
        await asyncio.gather(*asking.values(), return_exceptions=True)


async def _ask_until_answered(url: str, ask: Ask) -> ServerReport:
    while True:
        try:
            return await ask(url)
        except Unavailable:
            await asyncio.sleep(ASK_AGAIN_S)


async def _until_done(tasks: "list[asyncio.Task[ServerReport]]", count: int, deadline_s: float) -> None:
    """Return when `count` tasks are done; `TimeoutError` if that takes too long."""
    async with asyncio.timeout(deadline_s):
        while sum(task.done() for task in tasks) < count:
            await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
