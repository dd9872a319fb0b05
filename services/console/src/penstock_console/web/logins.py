"""Logins that gateways accept, by password or by token, kept in memory for the length of a session."""

import asyncio
import base64
import binascii
import math
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.clock import Clock, Entropy
from penstock_console.kafka.access import may_describe_cluster
from penstock_console.kafka.sessions import ANONYMOUS, KafkaSessions, Login
from penstock_console.openid.claims import access_claims
from penstock_console.openid.issuer import Issuer, Tokens
from penstock_console.pages.errors import Forbidden

TOKEN_BYTES = 32
log = structlog.get_logger()


class LoginLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions there are, and how long they live."""

    sessions_max: int = 1_000
    sessions_per_user_max: int = 20  # a new one ends the oldest one
    session_s: float = 8 * 3_600
    # A script sends its password with each request; gateways check it again after this time.
    basic_s: float = 60.0
    # A token is renewed so long before its end, or in the last quarter of a shorter life.
    renew_ahead_s: float = 60.0
    renew_retry_s: float = 5.0


DEFAULT_LIMITS = LoginLimits()


class _Session:
    """The session of one browser. It ends at `end_s`, and while its token has expired there is no user."""

    def __init__(self, login: Login, end_s: float) -> None:
        self.login = login
        self.end_s = end_s
        self.tokens: Tokens | None = None
        self.expires_s = math.inf
        self.renew_s = math.inf
        self.lock = asyncio.Lock()  # an issuer may accept a refresh token once only


class Logins:
    """The sessions of all users."""

    def __init__(
        self,
        kafka: KafkaSessions,
        clock: Clock,
        entropy: Entropy,
        *,
        issuer: Issuer | None = None,
        user_claim: str = "sub",
        check: Callable[[KafkaSessions, Login], Awaitable[None]] | None = None,
        limits: LoginLimits = DEFAULT_LIMITS,
    ) -> None:
        """`issuer` renews tokens; `user_claim` is the field of a token with the name of its user."""
        self.are_needed = kafka.needs_login
        self.take_passwords = kafka.takes_passwords
        self._kafka = kafka
        self._clock = clock
        self._entropy = entropy
        self._issuer = issuer
        self._user_claim = user_claim
        self._check = check or check_at_gateway
        self._limits = limits
        self._sessions: dict[str, _Session] = {}
        self._checked: dict[Login, float] = {}

    @property
    def challenge(self) -> str:
        """The kinds of login at the API, as HTTP names them."""
        return f'{"Basic" if self.take_passwords else "Bearer"} realm="penstock"'

    async def log_in(self, login: Login) -> str:
        """The token of a new session; `Unavailable` if the gateways refuse it, `Forbidden` for other users."""
        if not (self.take_passwords or login.token):
            raise Forbidden("the gateways take no passwords")
        await self._check(self._kafka, login)
        now_s = self._clock.monotonic_s()
        self._sessions = {token: each for token, each in self._sessions.items() if each.end_s > now_s}
        own = [token for token, each in self._sessions.items() if each.login.username == login.username]
        too_many = max(len(own) + 1 - self._limits.sessions_per_user_max, 0)
        ended = [self._sessions.pop(each) for each in own[:too_many]]
        if len(self._sessions) >= self._limits.sessions_max:
            raise Unavailable(f"{self._limits.sessions_max} sessions are open: log out in other browsers, or try later")
        token = self._entropy.take(TOKEN_BYTES).hex()
        self._sessions[token] = _Session(login, now_s + self._limits.session_s)
        for each in ended:
            await self._close_unused(each.login)
        return token

    async def log_in_by_tokens(self, tokens: Tokens) -> str:
        """As `log_in`, with the tokens of an issuer. The session ends with them, unless they can be renewed."""
        token = await self.log_in(_login_of(tokens))
        self._keep(self._sessions[token], tokens)
        return token

    async def log_out(self, token: str) -> None:
        """End a session."""
        found = self._sessions.pop(token, None)
        if found is not None:
            await self._close_unused(found.login)

    async def _close_unused(self, login: Login) -> None:
        """Close the client of a user without another session."""
        if all(each.login != login for each in self._sessions.values()):
            await self._kafka.forget(login)

    def of_session(self, token: str) -> Login | None:
        """The user of a session; None if there is none, or it has ended."""
        if not self.are_needed:
            return ANONYMOUS
        found = self._sessions.get(token)
        now_s = self._clock.monotonic_s()
        return found.login if found is not None and min(found.end_s, found.expires_s) > now_s else None

    async def renew(self, token: str) -> None:
        """Get new tokens for a session whose token ends soon. Without success, the session ends when its token does."""
        session = self._sessions.get(token)
        if session is None or session.tokens is None or self._issuer is None:
            return
        async with session.lock:
            now_s = self._clock.monotonic_s()
            if now_s < session.renew_s or now_s >= session.end_s:
                return
            old = session.login
            try:
                self._keep(session, await self._issuer.refresh(session.tokens))
            except Unavailable as error:
                session.renew_s = now_s + self._limits.renew_retry_s
                log.info("token_not_renewed", user=old.username, reason=str(error))
                return
            except Invalid as error:
                session.renew_s = math.inf
                session.end_s = min(session.end_s, session.expires_s)
                log.info("token_not_renewed", user=old.username, reason=str(error))
                return
        await self._kafka.forget(old)

    async def of_header(self, authorization: str) -> Login | None:
        """The user of a basic or bearer login; None if the header has none, `Unavailable` if the gateways refuse it."""
        now_s = self._clock.monotonic_s()
        scheme, _, value = authorization.partition(" ")
        login, end_s = None, math.inf
        if scheme.lower() == "basic" and self.take_passwords:
            login = _basic(value)
        elif scheme.lower() == "bearer" and self.are_needed:
            login, end_s = self._bearer(value.strip())
        if login is None or end_s <= now_s:
            return None
        if self._checked.get(login, 0.0) <= now_s:
            await self._check(self._kafka, login)
            self._checked = {each: until_s for each, until_s in self._checked.items() if until_s > now_s}
            if login.token and login not in self._checked:
                await self._close_others(login)
            self._checked[login] = min(now_s + self._limits.basic_s, end_s)
        return login

    def _bearer(self, token: str) -> tuple[Login | None, float]:
        """The user of a token, and its end; gateways check it."""
        try:
            claims = access_claims(token, self._user_claim)
        except Invalid as error:
            log.info("login_failed", reason=str(error))
            return None, 0.0
        return Login(claims.username, token=token), self._moment_s(claims.expires_ms)

    async def _close_others(self, login: Login) -> None:
        """Close the clients of other tokens of the user: a script may get a new one for each request."""
        for each in list(self._checked):
            if each.token and each.username == login.username:
                await self._kafka.forget(each)

    def _keep(self, session: _Session, tokens: Tokens) -> None:
        now_s = self._clock.monotonic_s()
        session.tokens, session.login = tokens, _login_of(tokens)
        session.expires_s = self._moment_s(tokens.expires_ms)
        if tokens.refresh:
            ahead_s = min(self._limits.renew_ahead_s, (session.expires_s - now_s) / 4)
            session.renew_s = session.expires_s - ahead_s
        else:
            session.renew_s = math.inf
            session.end_s = min(session.end_s, session.expires_s)

    def _moment_s(self, time_ms: int) -> float:
        """A time of the wall clock as one of the monotonic clock."""
        return self._clock.monotonic_s() + (time_ms - self._clock.now_ms()) / 1000


async def check_at_gateway(kafka: KafkaSessions, login: Login) -> None:
    """Return if the user may log in and describe the cluster; `Unavailable` or `Forbidden` if not."""
    if not await kafka.try_login(login, may_describe_cluster):
        raise Forbidden(f"the user {login.username!r} needs the right to describe the cluster")


def _login_of(tokens: Tokens) -> Login:
    return Login(tokens.username, token=tokens.access)


def _basic(value: str) -> Login | None:
    try:
        name, separator, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Login(name, password) if separator else None
