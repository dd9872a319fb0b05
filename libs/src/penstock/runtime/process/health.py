"""Health, readiness and metrics of a process, over HTTP."""

import os
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Protocol

import prometheus_client
from aiohttp import web
from prometheus_client.core import GaugeMetricFamily

from penstock.contracts.errors import Invalid
from penstock.runtime.process.http_token import read_token, require_token

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all lines, and no use for them


def new_registry() -> prometheus_client.CollectorRegistry:
    """A registry with the metrics of the process itself: CPU, memory, open files."""
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    prometheus_client.Gauge(
        "penstock_memory_blocks",
        "Blocks of memory that Python objects use. If it stays and resident memory grows, freed memory is kept.",
        registry=registry,
    ).set_function(sys.getallocatedblocks)
    return registry


class HealthReport(Protocol):
    """The health that an HTTP server shows."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def degraded(self) -> list[str]: ...

    def report(self) -> dict[str, object]: ...


class Health:
    """Whether the process is ready for work, and the problems with which it goes on working."""

    def __init__(self) -> None:
        self._ready = False
        self._reason = "starting"
        self._degraded: dict[str, str] = {}
        self._requirements: list[Callable[[], str]] = []
        self.on_ready: Callable[[], None] | None = None  # called each time that the process begins to take work

    @property
    def is_ready(self) -> bool:
        """Whether this process takes work."""
        return self._ready and not self._missing()

    def require(self, missing: Callable[[], str]) -> None:
        """Be ready only while `missing` returns an empty text; each readiness check calls it."""
        self._requirements.append(missing)

    def set_ready(self, ready: bool, reason: str = "") -> None:
        """Set whether this process takes work, and the reason if it does not."""
        self._ready = ready
        self._reason = reason
        if ready and self.on_ready is not None:
            self.on_ready()

    def set_degraded(self, name: str, reason: str) -> None:
        """Report a problem with which the process goes on working; an empty `reason` ends the problem."""
        if reason:
            self._degraded[name] = reason
        else:
            self._degraded.pop(name, None)

    def _missing(self) -> str:
        return next((missing for each in self._requirements if (missing := each())), "")

    def report(self) -> dict[str, object]:
        """The answer of `/ready` and `/health`."""
        return {"ready": self.is_ready, "reason": self._reason or self._missing(), "degraded": dict(self._degraded)}

    @property
    def degraded(self) -> list[str]:
        """The names of the present problems."""
        return list(self._degraded)


class _DegradedMetric(prometheus_client.registry.Collector):
    """The present problems as a metric, for alarms; `/health` has the texts."""

    def __init__(self, health: HealthReport) -> None:
        self._health = health

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One sample for each problem."""
        metric = GaugeMetricFamily(
            "penstock_degraded",
            "1 while the service works but has this problem; `/health` has the text.",
            labels=["reason"],
        )
        for name in self._health.degraded:
            metric.add_metric([name], 1)
        yield metric


def _in_words(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "no valid host name"
    if isinstance(error, socket.gaierror):  # its numbers are not those of the system
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else str(error)


class HttpServer:
    """Serves `/health` (answers while the process lives), `/ready` (200 or 503) and `/metrics` (Prometheus text)."""

    def __init__(
        self,
        health: HealthReport,
        registry: prometheus_client.CollectorRegistry,
        host: str,
        port: int,
        *,
        token_file: str = "",
    ) -> None:
        """With `token_file`, `/metrics` needs the token in that file."""
        registry.register(_DegradedMetric(health))
        self._health = health
        self._registry = registry
        self._host = host
        self._port = port
        self._token_file = token_file
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Listen; `Invalid` if the address or the token cannot be used."""
        middlewares = []
        if self._token_file:
            read_token(self._token_file)
            middlewares.append(require_token(self._token_file))
        app = web.Application(middlewares=middlewares)
        app.add_routes(
            [
                web.get("/health", self._answer_health),
                web.get("/ready", self._answer_ready),
                web.get("/metrics", self._answer_metrics),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except (OSError, UnicodeError) as error:
            await runner.cleanup()
            reason = _in_words(error)
            raise Invalid(f"cannot listen on {self._host}:{self._port} for health and metrics: {reason}") from error
        self._runner = runner

    @property
    def address(self) -> str:
        """The address of the server, `host:port`."""
        assert self._runner is not None, "the http server is not open"
        host, port = self._runner.addresses[0][:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening; does nothing if the server is not open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer_health(self, _request: web.Request) -> web.Response:
        return web.json_response(self._health.report())

    async def _answer_ready(self, _request: web.Request) -> web.Response:
        return web.json_response(self._health.report(), status=200 if self._health.is_ready else 503)

    async def _answer_metrics(self, _request: web.Request) -> web.Response:
        text = prometheus_client.generate_latest(self._registry)
        return web.Response(body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})
