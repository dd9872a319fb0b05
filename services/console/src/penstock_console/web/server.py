"""The HTTP server of the pages and the API."""

import contextlib
import ipaddress
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import structlog
from aiohttp import web

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock_console.kafka.records import RecordQuery, tail
from penstock_console.kafka.sessions import ANONYMOUS, Login, TooManyLogins
from penstock_console.openid.flow import CodeFlow
from penstock_console.pages.context import Request, Sources
from penstock_console.pages.errors import Forbidden, NotFound
from penstock_console.web.forms import fields_of, present
from penstock_console.web.login_pages import COOKIE, LOGIN, LoginPages
from penstock_console.web.logins import Logins
from penstock_console.web.openapi import description
from penstock_console.web.rendering import Templates
from penstock_console.web.routes import ACTIONS, API, PAGES, TAIL, Action, Page

BODY_BYTES_MAX = 4 * 2**20
NUMBER_DIGITS_MAX = 18  # in a path
STATIC, OPENAPI = "/static", f"{API}/openapi.json"
_OPEN = (STATIC + "/", LOGIN, "/health", "/ready")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_DENIED = "authorization failed"  # in the text of a gateway
_KEPT = ("WWW-Authenticate", "Allow")  # of an error of aiohttp
log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOGIN_KEY = web.RequestKey("login", Login)


class WebServer:
    """The pages of a console, its API, and the login."""

    def __init__(
        self,
        sources: Sources,
        logins: Logins,
        *,
        host: str,
        port: int,
        version: str,
        host_names: tuple[str, ...] = (),
        has_secure_cookies: bool = False,
        flow: CodeFlow | None = None,
    ) -> None:
        """Without `flow` there is no login by OpenID Connect."""
        self._sources = sources
        self._logins = logins
        self._host = host
        self._port = port
        self._version = version
        self._host_names = {"localhost", *host_names}
        self._templates = Templates()
        self._login_pages = LoginPages(logins, self._page, flow=flow, has_secure_cookies=has_secure_cookies)
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Listen; `Invalid` if the address cannot be used."""
        app = web.Application(middlewares=[self._contain, self._guard], client_max_size=BODY_BYTES_MAX)
        routes: list[web.AbstractRouteDef] = [
            web.static(STATIC, os.path.join(os.path.dirname(__file__), "static")),
            *self._login_pages.routes(),
            web.get(OPENAPI, self._openapi),
            web.get(_pattern(TAIL), self._tail),
            web.get(_pattern(API + TAIL), self._tail),
        ]
        for page in PAGES:
            routes.append(web.get(_pattern(page.path), self._html(page)))
            routes.append(web.get(_pattern(API + (page.api_path or page.path)), self._json(page)))
        for action in ACTIONS:
            routes.append(web.post(_pattern(action.path), self._form(action)))
            routes.append(web.post(_pattern(API + action.path), self._change(action)))
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise Invalid(f"cannot listen on {self._host}:{self._port} for the pages: {reason}") from error
        self._runner = runner

    @property
    def address(self) -> str:
        """The address of the pages, `host:port`."""
        assert self._runner is not None, "the web server is not open"
        host, port = self._runner.addresses[0][:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening; does nothing if the server is not open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _contain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer each error as a page or as JSON; the only place that catches all of them."""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                error.headers.update(_HEADERS)
                raise
            response = self._failed(request, error.status, error.reason)
            response.headers.update({name: error.headers[name] for name in _KEPT if name in error.headers})
        except PenstockError as error:
            response = self._failed(request, _status_of(error), str(error))
        except msgspec.ValidationError as error:
            response = self._failed(request, 400, str(error))
        except Exception:  # a page fails, the console goes on
            log.exception("request_failed", path=request.path)
            response = self._failed(request, 500, "the console failed; its log has the reason")
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _failed(self, request: web.Request, status: int, text: str) -> web.Response:
        if request.path.startswith(API):
            return web.json_response({"error": text}, status=status)
        return self._page(request, "error.html", "Error", {"status": status, "text": text}, status)

    def _page(
        self, request: web.Request, template: str, title: str, values: Mapping[str, Any], status: int = 200
    ) -> web.Response:
        text = self._templates.render(template, {**self._values(request, title), **values})
        return web.Response(text=text, status=status, content_type="text/html")

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests from other sites, and those without a login where one is needed."""
        self._check_host(request)
        if request.method == "POST":
            _check_same_site(request)
        login = await self._login_of(request)
        if login is None and not request.path.startswith(_OPEN):
            if request.path.startswith(API):
                raise web.HTTPUnauthorized(headers={"WWW-Authenticate": self._logins.challenge})
            raise web.HTTPSeeOther(f"{LOGIN}?next={quote(request.path_qs, safe='')}")
        request[LOGIN_KEY] = login or ANONYMOUS
        return await handler(request)

    async def _login_of(self, request: web.Request) -> Login | None:
        if not self._logins.are_needed:
            return ANONYMOUS
        session = request.cookies.get(COOKIE, "")
        await self._logins.renew(session)
        found = self._logins.of_session(session)
        if found is None and request.path.startswith(API):
            try:
                found = await self._logins.of_header(request.headers.get("Authorization", ""))
            except TooManyLogins:  # the login may be right
                raise
            except Unavailable as error:
                log.info("login_failed", reason=str(error))
        return found

    def _check_host(self, request: web.Request) -> None:
        """Reject names that are not this console's: a page of another site could reach it under such a name."""
        if self._logins.are_needed:
            return
        name = _host_name(request.host)
        if name not in self._host_names and not _is_address(name):
            raise Forbidden(f"the console is not known as {name!r}: set PENSTOCK_HOST_NAMES, or use its address")

    def _html(self, page: Page) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            arguments = _arguments(page.path, page.numbers, request)
            view, query = await self._view(page, request, arguments)
            fields = msgspec.structs.asdict(query) if query is not None else {}
            return self._page(request, page.template, page.title, {"view": view, "query": fields, **arguments})

        return answer

    def _json(self, page: Page) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            view, _ = await self._view(page, request, _arguments(page.path, page.numbers, request))
            return _as_json(view)

        return answer

    async def _view(self, page: Page, request: web.Request, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
        query = None
        given: dict[str, Any] = dict(arguments)
        if page.query is not None:
            named = given if page.query is RecordQuery else {}
            fields = {name: value for name, value in request.query.items() if value != ""}
            topic = {"topic": str(named["name"])} if "name" in named else {}
            query = given["query"] = msgspec.convert(fields | topic, page.query, strict=False)
        return await page.view(self._sources, Request(request[LOGIN_KEY]), **given), query

    def _form(self, action: Action) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            body = msgspec.convert(present(await fields_of(request)), action.body, strict=False)
            arguments = _arguments(action.path, (), request)
            result = await self._perform(action, request, arguments, body)
            message = getattr(result, "message", "") or f"written at {result.partition}@{result.offset}"
            back = action.back.format(**{name: quote(value, safe="") for name, value in arguments.items()})
            raise web.HTTPSeeOther(f"{back}?done={quote(message, safe='')}")

        return answer

    def _change(self, action: Action) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            try:
                body = msgspec.json.decode(await request.read() or b"{}", type=action.body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Invalid(f"the body is not as described at {OPENAPI}: {error}") from error
            return _as_json(await self._perform(action, request, _arguments(action.path, (), request), body))

        return answer

    async def _perform(self, action: Action, request: web.Request, arguments: Mapping[str, Any], body: Any) -> Any:
        if not self._sources.may_change:
            raise Forbidden(
                "this console only shows: changes are switched on with `penstock up --console-changes`, "
                "elsewhere with PENSTOCK_CHANGES=true"
            )
        login = request[LOGIN_KEY]
        logged = {name: getattr(body, name) for name in action.logged}
        facts = {"user": login.username, "action": action.summary, **arguments, **logged}
        try:
            result = await action.perform(self._sources, Request(login), *arguments.values(), body)
        except PenstockError as error:
            log.info("change_rejected", **facts, reason=str(error))
            raise
        log.info("change_made", **facts)
        with contextlib.suppress(PenstockError):  # the change is made; the next page reports the error
            await self._sources.survey.refresh()
        return result

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        """New records as server-sent events, one list for each."""
        fields = {name: value for name, value in request.query.items() if value != ""}
        query = msgspec.convert(fields | {"topic": request.match_info["name"]}, RecordQuery, strict=False)
        response = web.StreamResponse(headers=_HEADERS | {"Content-Type": "text/event-stream"})
        sources = self._sources
        records = tail(sources.kafka, request[LOGIN_KEY], query, sources.clock, decoder=sources.decoder)
        try:
            first = await anext(records)
            await response.prepare(request)
            await response.write(_event(first))
            async for found in records:
                await response.write(_event(found))
            await response.write(b"event: end\ndata: {}\n\n")
        except ConnectionError:  # the reader has left
            pass
        except PenstockError as error:
            if not response.prepared:
                raise
            log.info("tail_ended", reason=str(error))  # without the event `end`, a browser reports an error
        finally:
            await records.aclose()  # type: ignore[attr-defined]
        return response

    async def _openapi(self, _request: web.Request) -> web.Response:
        return _as_json(description(self._version))

    def _values(self, request: web.Request, title: str) -> dict[str, Any]:
        """The values that every template has."""
        return {
            "cluster": self._sources.cluster,
            "title": title,
            "here": request.path,
            "may_change": self._sources.may_change,
            "user": request.get(LOGIN_KEY, ANONYMOUS).username,
            "has_logins": self._logins.are_needed,
            "done": request.query.get("done", ""),
            "version": self._version,
        }


def _pattern(path: str) -> str:
    """The path for aiohttp. A name in it may have braces, which aiohttp's own pattern of a name excludes."""
    return path.replace("}", ":[^/]+}")


def _status_of(error: PenstockError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Forbidden) or _DENIED in str(error).lower():
        return 403
    return 400 if isinstance(error, Invalid) else 503


def _check_same_site(request: web.Request) -> None:
    """`Forbidden` for a form of another site. Scripts send neither header, and no cookie."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    is_other = site not in (None, "same-origin", "none") or (
        site is None and origin is not None and origin.partition("://")[2] != request.host
    )
    if is_other:
        raise Forbidden("this request comes from another site")


def _arguments(path: str, numbers: tuple[str, ...], request: web.Request) -> dict[str, Any]:
    found: dict[str, Any] = dict(request.match_info)
    for name in numbers:
        if not (found[name].isdecimal() and len(found[name]) <= NUMBER_DIGITS_MAX):
            raise NotFound(f"not a number: {found[name]!r}")
        found[name] = int(found[name])
    return found


def _host_name(host: str) -> str:
    """The name in the header `Host`, "" if it is malformed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _as_json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _event(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
