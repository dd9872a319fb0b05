"""The pages of the console service under the address of `penstock up`, and its start with the first page."""

import asyncio
from collections.abc import Callable

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

BODY_BYTES_MAX = 8 * 2**20
# Of one connection only (RFC 9110, 7.6.1), or made anew by this server.
_OWN_HEADERS = ("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length")


class ProxyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the console may take."""

    connect_s: float = 1.0
    # The first requests wait for its start: so long while it does not run, and longer on a busy machine while it does.
    start_s: float = 20.0
    start_s_max: float = 120.0
    retry_s: float = 0.1
    # A page waits for gateways, and a live tail is silent while no records come.
    silence_s: float = 120.0


DEFAULT_LIMITS = ProxyLimits()


class ConsoleProxy:
    """Passes requests on to the console; the first one starts it."""

    def __init__(self, port: int, start: Callable[[], bool], *, limits: ProxyLimits = DEFAULT_LIMITS) -> None:
        """`port` is the console's on loopback; `start` starts it if need be, and returns whether its process runs."""
        self._url = f"http://127.0.0.1:{port}"
        self._start = start
        self._limits = limits
        self._client: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Be ready for requests."""
        limits = self._limits
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s, sock_read=limits.silence_s)
        self._client = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)

    async def close(self) -> None:
        """End all connections."""
        if self._client is not None:
            await self._client.close()

    async def answer(self, request: web.Request, *, waits: bool) -> web.StreamResponse | None:
        """The console's answer; None if it does not run. With `waits`, only after the time of a start."""
        assert self._client is not None, "the proxy is not open"
        is_running = self._start()
        body = await request.read() if request.can_read_body else None  # once: the first attempt takes it
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            try:
                return await self._passed_on(self._client, request, body)
            except aiohttp.ClientConnectorError:
                patience_s = self._limits.start_s_max if is_running else self._limits.start_s
                if not waits or loop.time() - began_s >= patience_s:
                    return None
            except (aiohttp.ClientError, TimeoutError) as error:
                raise web.HTTPBadGateway(text=f"the console does not answer: {error}") from error
            await asyncio.sleep(self._limits.retry_s)
            is_running = self._start()

    async def _passed_on(
        self, client: aiohttp.ClientSession, request: web.Request, body: bytes | None
    ) -> web.StreamResponse:
        async with client.request(
            request.method,
            f"{self._url}{request.raw_path}",
            headers=_passed_headers(request.headers),
            data=body,
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_headers(answer.headers))
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response


def _passed_headers(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The headers that belong to the message and not to the connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OWN_HEADERS)
