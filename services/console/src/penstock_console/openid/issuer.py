"""Requests to an issuer: its addresses, tokens for a code, and new tokens for a refresh token.

No answer and no error of these requests may reach a log or a page: they may have tokens.
"""

import asyncio
import math
import re
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.clock import Clock
from penstock_console.openid.claims import access_claims, check_id_token
from penstock_console.openid.settings import DEFAULT_LIMITS, DISCOVERY, OpenIdLimits, OpenIdSettings, check_address

Found = TypeVar("Found")
_BASIC, _POST = "client_secret_basic", "client_secret_post"
_ERROR = re.compile(r"[a-z_]{1,64}")
_OK, _REFUSALS = 200, (400, 401, 403)


class Refused(Invalid):
    """The issuer answers that it gives no tokens."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one login; `refresh` is "" if the issuer gives none."""

    username: str
    access: str
    expires_ms: int
    refresh: str = ""

    def __repr__(self) -> str:
        return f"Tokens({self.username!r})"


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of an issuer (OpenID Connect Discovery)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = (_BASIC,)


class _Answer(msgspec.Struct, frozen=True):
    access_token: str
    token_type: str
    id_token: str | None = None
    refresh_token: str | None = None


class _Failure(msgspec.Struct, frozen=True):
    error: str


class Issuer:
    """One issuer, asked for each login."""

    def __init__(self, settings: OpenIdSettings, clock: Clock, *, limits: OpenIdLimits = DEFAULT_LIMITS) -> None:
        self.settings = settings
        self._clock = clock
        self._limits = limits
        self._addresses: Addresses | None = None
        self._read_s = 0.0
        self._retry_s = -math.inf
        self._turn = asyncio.Lock()

    async def addresses(self) -> Addresses:
        """The addresses, kept for some minutes; `Unavailable` without an answer, `Invalid` for an unusable one."""
        async with self._turn:  # browsers that come together wait for the same answer
            now_s = self._clock.monotonic_s()
            if self._addresses is None or now_s - self._read_s >= self._limits.discovery_s:
                if now_s < self._retry_s:
                    raise Unavailable("the issuer did not answer a moment ago: try again")
                self._retry_s = now_s + self._limits.retry_s
                self._addresses, self._read_s = await self._discovered(), now_s
            return self._addresses

    async def _discovered(self) -> Addresses:
        found = _decoded(await self._get(self.settings.issuer.rstrip("/") + DISCOVERY), Addresses)
        if found.issuer != self.settings.issuer:
            raise Invalid(f"the issuer has another name: {found.issuer!r:.200}")
        for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            check_address(url)
        return found

    async def redeem(self, code: str, verifier: str, nonce: str) -> Tokens:
        """The tokens for a code; `Refused`, `Unavailable`, or `Invalid` for tokens of no use."""
        addresses = await self.addresses()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.settings.redirect_url}
        answer = await self._ask(addresses, form | {"code_verifier": verifier})
        check_id_token(
            answer.id_token or "",
            await self._get(addresses.jwks_uri),
            issuer=addresses.issuer,
            client_id=self.settings.client_id,
            nonce=nonce,
            now_ms=self._clock.now_ms(),
            clock_skew_s=self._limits.clock_skew_s,
        )
        return self._tokens(answer, "")

    async def refresh(self, tokens: Tokens) -> Tokens:
        """New tokens of the same user; the errors are those of `redeem`."""
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
        found = self._tokens(await self._ask(await self.addresses(), form), tokens.refresh)
        if found.username != tokens.username:
            raise Refused("the issuer's new token is of another user")
        return found

    def _tokens(self, answer: _Answer, refresh: str) -> Tokens:
        if answer.token_type.lower() != "bearer":
            raise Invalid("the issuer's token is no bearer token")
        claims = access_claims(answer.access_token, self.settings.user_claim)
        if claims.expires_ms <= self._clock.now_ms():
            raise Invalid("the access token has expired")
        return Tokens(
            username=claims.username,
            access=answer.access_token,
            expires_ms=claims.expires_ms,
            refresh=answer.refresh_token or refresh,
        )

    async def _ask(self, addresses: Addresses, form: dict[str, str]) -> _Answer:
        """The answer of the token endpoint (RFC 6749, sections 2.3.1 and 4.1.3)."""
        settings, headers = self.settings, {"Content-Type": "application/x-www-form-urlencoded"}
        methods = addresses.token_endpoint_auth_methods_supported
        if settings.client_secret and (_BASIC in methods or _POST not in methods):
            user, secret = quote(settings.client_id, safe=""), quote(settings.client_secret, safe="")
            headers["Authorization"] = aiohttp.encode_basic_auth(user, secret)
        else:
            form = form | {"client_id": settings.client_id}
            form |= {"client_secret": settings.client_secret} if settings.client_secret else {}
        url = addresses.token_endpoint
        status, body = await self._request("POST", url, data=urlencode(form).encode(), headers=headers)
        if status in _REFUSALS:
            raise Refused(f"the issuer refuses the login: {error_word(_failure(body))}")
        if status != _OK:
            raise Unavailable(f"the issuer answers with status {status}")
        return _decoded(body, _Answer)

    async def _get(self, url: str) -> bytes:
        status, body = await self._request("GET", url)
        if status != _OK:
            raise Unavailable(f"the issuer answers with status {status}: {url}")
        return body

    async def _request(self, method: str, url: str, **more: Any) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=self._limits.timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(method, url, allow_redirects=False, **more) as answer,
            ):
                return answer.status, await self._read(answer.content)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a time-out is an OSError
            raise Unavailable(f"the issuer does not answer: {type(error).__name__}") from None

    async def _read(self, content: aiohttp.StreamReader) -> bytes:
        read = bytearray()
        while chunk := await content.read(self._limits.answer_bytes_max + 1 - len(read)):
            read += chunk
            if len(read) > self._limits.answer_bytes_max:
                raise Invalid(f"the issuer's answer has more than {self._limits.answer_bytes_max} bytes")
        return bytes(read)


def error_word(text: str) -> str:
    """An error of the issuer, if it is one of the protocol's words."""
    return text if _ERROR.fullmatch(text) else "no reason is given"


def _failure(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Failure).error
    except msgspec.MsgspecError:
        return ""


def _decoded(body: bytes, kind: type[Found]) -> Found:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the issuer's answer is not as OpenID Connect describes it: {error}"[:300]) from None
