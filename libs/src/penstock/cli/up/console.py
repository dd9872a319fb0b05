"""The web server of `penstock up`: health, metrics and a page of all processes; other paths are the console's."""

import asyncio
import html
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
import prometheus_client
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from penstock.cli.children import Child
from penstock.cli.ports import Address
from penstock.cli.up.console_proxy import BODY_BYTES_MAX, ConsoleProxy
from penstock.cli.up.specs import AGENT
from penstock.cli.up.watch import is_hung
from penstock.contracts.errors import Invalid
from penstock.contracts.messages import Presence
from penstock.runtime.bus.presence import Directory
from penstock.runtime.process.http_token import read_token, require_token

ROLES = ("gateway", "flusher", "sequencer", "cacher")  # without one of each, clients are not served
HELPERS = ("compactor", "janitor", "console")  # clients are served without them
RUNNING, HANGS, NOT_RUNNING = "runs", "hangs", "does not run"
_WRONG = {HANGS: "its process runs, but does not answer", NOT_RUNNING: "its process does not run"}
OWN_PATHS = ("/health", "/ready", "/processes", "/metrics")
SCRAPE_TIMEOUT_S = 2.0  # a stuck process must not block the page of all processes

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="2"><title>Penstock</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2.5rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2733 }}
 h1 {{ font-size: 1.4rem }} h2 {{ font-size: 1.2rem }} .ok {{ color: #17693a }} .bad {{ color: #a11d1d }}
 table {{ border-collapse: collapse; width: 100% }} td, th {{ text-align: left; padding: .35rem .8rem .35rem 0 }}
 th {{ border-bottom: 2px solid #d5dce3; font-weight: 600 }} td {{ border-bottom: 1px solid #e8ecf0 }}
</style></head><body>
<h1>Penstock <span class="{tone}">{state}</span></h1>
{wrong}<table><tr><th>service</th><th>instance</th><th>kafka</th><th>unanswered</th><th>health and metrics</th></tr>
{instances}</table>
<h2>Processes</h2>
<table><tr><th>process</th><th>state</th><th>pid</th><th>restarts</th><th>log</th></tr>
{processes}</table>
<p><a href="/metrics">metrics</a> &middot; <a href="/health">health</a></p>
</body></html>
"""


class Degraded(msgspec.Struct, frozen=True):
    """A problem of one instance that continues to work."""

    service: str
    instance: str
    name: str
    reason: str


class _State(msgspec.Struct, frozen=True):
    """Whether clients are served; `waiting` has one sentence per reason why not."""

    ready: bool
    waiting: list[str]
    degraded: list[Degraded]


class Console:
    """An HTTP server that shows the instances of the directory and the processes of the supervisor."""

    def __init__(
        self,
        address: Address,
        directory: Directory,
        children: Callable[[], Sequence[Child]],
        find_shortage: Callable[[], str],
        *,
        token_file: str = "",
        proxy: ConsoleProxy | None = None,
        is_secure: bool = False,
    ) -> None:
        """`children` returns the processes; `find_shortage` returns a sentence if the disk is nearly full, else "".

        With `token_file`, all pages but `/health` and `/ready` need the token in that file, as those of services do.
        Behind `proxy` is the console; if `is_secure`, it asks for logins itself, and needs no token.
        """
        self._address = address
        self._directory = directory
        self._children = children
        self._find_shortage = find_shortage
        self._token_file = token_file
        self._proxy = proxy
        self._is_secure = is_secure
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Listen."""
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SCRAPE_TIMEOUT_S))
        app = web.Application(
            middlewares=[self._require_token()] if self._token_file else [], client_max_size=BODY_BYTES_MAX
        )
        if self._proxy is not None:
            await self._proxy.open()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ready", self._health),
                web.get("/processes", self._processes),
                web.get("/metrics", self._metrics),
                web.route("*", "/{path:.*}", self._console),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address.host, self._address.port).start()

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()
        if self._proxy is not None:
            await self._proxy.close()

    async def waiting(self) -> list[str]:
        """The reasons why clients are not served; none if each service has an instance, and all report ready."""
        return (await self._state()).waiting

    async def _state(self) -> _State:
        """The state of all instances: readiness, missing services and problems."""
        instances = self._instances()
        reports = await asyncio.gather(*(self._report_of(instance) for instance in instances))
        answers = list(zip(instances, reports, strict=True))
        degraded = [
            Degraded(instance.role, instance.instance, name, reason)
            for instance, report in answers
            for name, reason in report["degraded"].items()
        ]
        degraded += [
            Degraded(child.spec.name.rpartition("-")[0], child.spec.name, "process", _WRONG[state])
            for child in self._children()
            if (state := self._state_of(child)) in _WRONG
        ]
        if found := self._find_shortage():
            degraded.append(Degraded("up", "up", "disk", found))
        waiting = [f"there is no {role}" for role in ROLES if not self._directory.live(role)] + [
            f"{instance.instance} is not ready: {report['reason']}"
            for instance, report in answers
            if instance.role in ROLES and not report["ready"]
        ]
        return _State(not waiting, waiting, degraded)

    def _state_of(self, child: Child) -> str:
        if child.pid is None:
            return NOT_RUNNING
        if is_hung(child, self._directory):
            return HANGS
        return RUNNING if child.was_heard or not child.spec.is_service else "starts"

    def _instances(self) -> list[Presence]:
        return [instance for role in (*ROLES, *HELPERS) for instance in self._directory.live(role)]

    async def _report_of(self, instance: Presence) -> dict[str, Any]:
        """The answer of a service at `/ready`, also if it is not ready."""
        text = await self._fetch(instance, "/ready", statuses=(200, 503))
        if not text:
            return {"ready": False, "reason": "no answer", "degraded": {}}
        report: dict[str, Any] = json.loads(text)
        whole: dict[str, Any] = report.get("roles", {}).get(instance.role, report)  # a process may have several roles
        return whole

    async def _fetch(self, instance: Presence, path: str, statuses: Sequence[int] = (200,)) -> str | None:
        """The text at an instance's own HTTP port, None if it does not answer with one of the statuses."""
        assert self._client is not None, "the console is not open"
        try:
            token = {"Authorization": f"Bearer {read_token(self._token_file)}"} if self._token_file else {}
            async with self._client.get(f"http://{instance.http}{path}", headers=token) as answer:
                return await answer.text() if answer.status in statuses else None
        except (aiohttp.ClientError, TimeoutError, Invalid):
            return None

    def _require_token(self) -> Middleware:
        """All paths need the token, but not those of a console that asks for logins."""
        check = require_token(self._token_file)

        @web.middleware
        async def check_own(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            if self._is_secure and self._proxy is not None and request.path not in OWN_PATHS:
                return await handler(request)
            return await check(request, handler)

        return check_own

    async def _console(self, request: web.Request) -> web.StreamResponse:
        """The console's answer; without it, `/` is the page of all processes, also while the console starts."""
        has_page = request.path == "/" and request.method == "GET" and not self._is_secure
        if self._proxy is None and not has_page:
            raise web.HTTPNotFound
        answer = await self._proxy.answer(request, waits=not has_page) if self._proxy is not None else None
        if answer is not None:
            return answer
        if has_page:
            return web.Response(text=await self.page(), content_type="text/html")
        raise web.HTTPServiceUnavailable(text="the console does not run yet: try again, or read its log\n")

    async def page(self) -> str:
        """The web page, as HTML."""
        state = await self._state()
        wrong = [*state.waiting, *(f"{each.instance} is degraded: {each.reason}" for each in state.degraded)]
        return _PAGE.format(
            tone="ok" if state.ready else "bad",
            state="is ready" if state.ready else "is not ready",
            wrong="".join(f'<p class="bad">{html.escape(each)}</p>\n' for each in wrong),
            instances="".join(_row(*_facts(instance), _links(instance.http)) for instance in self._instances()),
            processes="".join(_row(*_facts_of_process(child, self._state_of(child))) for child in self._children()),
        )

    async def _health(self, _request: web.Request) -> web.Response:
        state = await self._state()
        counts = {role: len(self._directory.live(role)) for role in (*ROLES, *HELPERS)}
        facts = msgspec.to_builtins(state) | {"instances": counts}
        return web.json_response(facts, status=200 if state.ready else 503)

    async def _processes(self, _request: web.Request) -> web.Response:
        return web.json_response(
            [
                {
                    "name": child.spec.name,
                    "state": self._state_of(child),
                    "pid": child.pid,
                    "restarts": child.restarts,
                }
                for child in self._children()
            ]
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        names = {instance: child.spec.name for child in self._children() for instance in child.instances}
        instances = _processes(self._instances(), names)
        texts = await asyncio.gather(*(self._fetch(instance, "/metrics") for instance in instances))
        registry = prometheus_client.CollectorRegistry()
        registry.register(_Joined([(i, text) for i, text in zip(instances, texts, strict=True) if text is not None]))
        return web.Response(body=prometheus_client.generate_latest(registry), content_type="text/plain")


def _processes(instances: Iterable[Presence], names: Mapping[str, str]) -> list[Presence]:
    """One instance for each process; several roles of one process have one address.

    A process that `names` has gets its name there, which stays the same when it starts again.
    """
    by_address: dict[str, Presence] = {}
    for instance in instances:
        name = names.get(instance.instance, instance.instance)
        role = instance.role
        if instance.http in by_address:
            role, name = AGENT, name.removesuffix(f"-{instance.role}")
        by_address[instance.http] = msgspec.structs.replace(instance, role=role, instance=name)
    return list(by_address.values())


class _Joined(prometheus_client.registry.Collector):
    """The metrics of several processes as one page, each sample labelled with its service, zone and instance."""

    def __init__(self, pages: Sequence[tuple[Presence, str]]) -> None:
        self._pages = pages

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for instance, text in self._pages:
            for family in text_string_to_metric_families(text):
                joined = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    own = {"service": instance.role, "zone": instance.zone, "instance": instance.instance}
                    joined.add_sample(sample.name, own | sample.labels, sample.value)
        return families.values()


def _facts(instance: Presence) -> tuple[str, ...]:
    kafka = ", ".join(f"{each.name} {Address(each.host, each.port)}" for each in instance.listeners)
    facts = (instance.role, instance.instance, kafka, f"{instance.load_bytes / 2**20:.1f} MiB")
    return tuple(html.escape(fact) for fact in facts)


def _links(address: str) -> str:
    """Links to the pages of one service."""
    at = html.escape(address)
    return f'{at} <a href="http://{at}/health">health</a> &middot; <a href="http://{at}/metrics">metrics</a>'


def _facts_of_process(child: Child, state: str) -> tuple[str, ...]:
    name, *facts = (child.spec.name, str(child.pid or ""), str(child.restarts), str(child.spec.log_path))
    tone = "bad" if state in _WRONG else "ok"
    return html.escape(name), f'<span class="{tone}">{state}</span>', *map(html.escape, facts)


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
