"""The pages of the login: a form for passwords, and the way to an issuer and back."""

from collections.abc import Mapping
from typing import Any, Protocol

import structlog
from aiohttp import web

from penstock.contracts.errors import Invalid, Unavailable
from penstock_console.kafka.sessions import Login
from penstock_console.openid.flow import CodeFlow
from penstock_console.openid.settings import CALLBACK
from penstock_console.pages.errors import Forbidden
from penstock_console.web.forms import fields_of
from penstock_console.web.logins import Logins

COOKIE = "penstock_session"
# The secret of a browser that is at the issuer. It comes back from another site, so the cookie is not strict.
AWAY_COOKIE = "penstock_login"
LOGIN, LOGOUT, OPENID = "/login", "/logout", "/login/openid"
log = structlog.get_logger()


class RenderPage(Protocol):
    """Makes a page from a template."""

    def __call__(
        self, request: web.Request, template: str, title: str, values: Mapping[str, Any], status: int = 200
    ) -> web.Response: ...


class LoginPages:
    """The login and the logout in a browser."""

    def __init__(
        self, logins: Logins, render: RenderPage, *, flow: CodeFlow | None = None, has_secure_cookies: bool = False
    ) -> None:
        self._logins = logins
        self._render = render
        self._flow = flow
        self._has_secure_cookies = has_secure_cookies

    def routes(self) -> list[web.AbstractRouteDef]:
        """The routes, without those of an issuer if there is none."""
        own: list[web.AbstractRouteDef] = [
            web.get(LOGIN, self._form),
            web.post(LOGIN, self._log_in),
            web.post(LOGOUT, self._log_out),
        ]
        return own + ([web.get(OPENID, self._leave), web.get(CALLBACK, self._come_back)] if self._flow else [])

    async def _form(self, request: web.Request) -> web.Response:
        return self._login_page(request, local(request.query.get("next", "/")))

    def _login_page(self, request: web.Request, target: str, error: str = "") -> web.Response:
        values = {
            "next": target,
            "error": error,
            "has_passwords": self._logins.take_passwords,
            # At the address to which the issuer sends the browser back, so that the cookie is for the same host.
            "issuer_url": "" if self._flow is None else self._flow.issuer.settings.console_url(OPENID),
        }
        return self._render(request, "login.html", "Log in", values, 401 if error else 200)

    async def _log_in(self, request: web.Request) -> web.Response:
        fields = await fields_of(request)
        login = Login(fields.get("username", ""), fields.get("password", ""))
        target = local(fields.get("next", "/"))
        try:
            token = await self._logins.log_in(login)
        except (Unavailable, Forbidden) as error:
            log.info("login_failed", user=login.username, reason=str(error))
            return self._login_page(request, target, str(error))
        log.info("login_made", user=login.username)
        response = web.HTTPSeeOther(target)
        self._set_cookie(response, token)
        raise response

    async def _leave(self, request: web.Request) -> web.Response:
        """Send the browser to the issuer."""
        assert self._flow is not None, "there is no issuer"
        target = local(request.query.get("next", "/"))
        try:
            departure = await self._flow.begin(target)
        except (Unavailable, Invalid) as error:
            log.info("login_failed", reason=str(error))
            return self._login_page(request, target, str(error))
        response = web.HTTPSeeOther(departure.url)
        response.set_cookie(
            AWAY_COOKIE,
            departure.browser,
            max_age=int(self._flow.login_s),
            httponly=True,
            samesite="Lax",
            secure=self._has_secure_cookies,
            path=OPENID,
        )
        raise response

    async def _come_back(self, request: web.Request) -> web.Response:
        """End the login of a browser that the issuer sends back.

        A page leads on: after a redirect from another site, a browser would not send the strict cookie.
        """
        assert self._flow is not None, "there is no issuer"
        user = ""
        try:
            tokens, target = await self._flow.end(request.cookies.get(AWAY_COOKIE, ""), request.query)
            user = tokens.username
            token = await self._logins.log_in_by_tokens(tokens)
        except (Unavailable, Invalid) as error:
            log.info("login_failed", user=user, reason=str(error))
            response = self._login_page(request, "/", str(error))
        else:
            log.info("login_made", user=user)
            response = self._render(request, "logged_in.html", "Logged in", {"target": target})
            self._set_cookie(response, token)
        response.del_cookie(AWAY_COOKIE, path=OPENID)
        return response

    def _set_cookie(self, response: web.StreamResponse, token: str) -> None:
        response.set_cookie(COOKIE, token, httponly=True, samesite="Strict", secure=self._has_secure_cookies, path="/")

    async def _log_out(self, request: web.Request) -> web.Response:
        await self._logins.log_out(request.cookies.get(COOKIE, ""))
        response = web.HTTPSeeOther(LOGIN)
        response.del_cookie(COOKIE, path="/")
        raise response


def local(target: str) -> str:
    """The target of a redirect, `/` unless it is a path of this console. Browsers skip control characters."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path else "/"
