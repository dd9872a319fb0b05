"""An S3 endpoint that is as slow as S3: `python -m benches.slow_store --behind URL --port N` until it is killed.

It forwards requests unchanged to a fast server, so that signatures stay valid. Before that it waits: the times have a
log-normal distribution, with the given median and 99th percentile of reads and of writes.
"""

import argparse
import asyncio
import math
import random

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

Z99 = 2.326  # standard deviations from the median to the 99th percentile
BODY_BYTES_MAX = 2**30
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


class Waits:
    """Log-normal waits, in seconds."""

    def __init__(self, p50_ms: float, p99_ms: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._mu = math.log(p50_ms / 1000)
        self._sigma = math.log(p99_ms / p50_ms) / Z99

    def draw_s(self) -> float:
        """A random wait."""
        return self._random.lognormvariate(self._mu, self._sigma)


class SlowStore:
    """Forwards requests after a wait."""

    def __init__(self, behind: str, reads: Waits, writes: Waits) -> None:
        self._behind = behind
        self._reads = reads
        self._writes = writes

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request as the fast server does."""
        waits = self._reads if request.method in ("GET", "HEAD") else self._writes
        body = await request.read()
        await asyncio.sleep(waits.draw_s())
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_HEADERS}
        async with self._session.request(
            request.method, self._behind + request.raw_path, headers=headers, data=body, allow_redirects=False
        ) as answer:
            content = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS}
            if request.method == "HEAD" and "Content-Length" in answer.headers:
                kept["Content-Length"] = answer.headers["Content-Length"]
            return web.Response(status=answer.status, headers=kept, body=None if request.method == "HEAD" else content)

    async def run(self, port: int) -> None:
        """Serve until cancelled."""
        connector = TCPConnector(limit=0)
        async with ClientSession(connector=connector, auto_decompress=False, timeout=ClientTimeout()) as self._session:
            application = web.Application(client_max_size=BODY_BYTES_MAX)
            application.router.add_route("*", "/{path:.*}", self.handle)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="benches.slow_store")
    parser.add_argument("--behind", required=True, help="the fast server, http://host:port")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--reads", nargs=2, type=float, default=(20, 100), metavar=("P50", "P99"), help="in ms")
    parser.add_argument("--writes", nargs=2, type=float, default=(60, 250), metavar=("P50", "P99"), help="in ms")
    arguments = parser.parse_args()
    store = SlowStore(arguments.behind, Waits(*arguments.reads, seed=1), Waits(*arguments.writes, seed=2))
    asyncio.run(store.run(arguments.port))


if __name__ == "__main__":
    main()
