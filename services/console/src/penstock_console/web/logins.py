"""Logins: a name and a password that gateways accept, kept in memory for the length of a session."""

import base64
import binascii
from collections.abc import Awaitable, Callable

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.runtime.clock import Clock, Entropy
from penstock_console.kafka.access import may_describe_cluster
from penstock_console.kafka.sessions import ANONYMOUS, KafkaSessions, Login
from penstock_console.pages.errors import Forbidden

COOKIE = "penstock_session"
TOKEN_BYTES = 32


class LoginLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions there are, and how long they live."""

    sessions_max: int = 1_000
    session_s: float = 8 * 3_600
    # A script sends its password with each request; gateways check it again after this time.
    basic_s: float = 60.0


DEFAULT_LIMITS = LoginLimits()


class Logins:
    """The sessions of all users."""

    def __init__(
        self,
        kafka: KafkaSessions,
        clock: Clock,
        entropy: Entropy,
        *,
        check: Callable[[KafkaSessions, Login], Awaitable[None]] | None = None,
        limits: LoginLimits = DEFAULT_LIMITS,
    ) -> None:
        self.are_needed = kafka.needs_login
        self._kafka = kafka
        self._clock = clock
        self._entropy = entropy
        self._check = check or check_at_gateway
        self._limits = limits
        self._sessions: dict[str, tuple[Login, float]] = {}
        self._checked: dict[Login, float] = {}

    async def log_in(self, login: Login) -> str:
        """The token of a new session; `Unavailable` if the gateways refuse it, `Forbidden` for other users."""
        await self._check(self._kafka, login)
        now_s = self._clock.monotonic_s()
        self._sessions = {token: each for token, each in self._sessions.items() if each[1] > now_s}
        if len(self._sessions) >= self._limits.sessions_max:
            raise Unavailable(f"{self._limits.sessions_max} users are logged in: try again later")
        token = self._entropy.take(TOKEN_BYTES).hex()
        self._sessions[token] = (login, now_s + self._limits.session_s)
        return token

    async def log_out(self, token: str) -> None:
        """End a session."""
        found = self._sessions.pop(token, None)
        if found is not None and all(login != found[0] for login, _ in self._sessions.values()):
            await self._kafka.forget(found[0])

    def of_session(self, token: str) -> Login | None:
        """The user of a session; None if there is none, or it has ended."""
        if not self.are_needed:
            return ANONYMOUS
        found = self._sessions.get(token)
        return found[0] if found is not None and found[1] > self._clock.monotonic_s() else None

    async def of_header(self, authorization: str) -> Login | None:
        """The user of HTTP's basic login; None if the header has none, `Unavailable` if the gateways refuse it."""
        login = _basic(authorization)
        if login is None:
            return None
        now_s = self._clock.monotonic_s()
        if self._checked.get(login, 0.0) <= now_s:
            await self._check(self._kafka, login)
            self._checked = {each: until_s for each, until_s in self._checked.items() if until_s > now_s}
            self._checked[login] = now_s + self._limits.basic_s
        return login


async def check_at_gateway(kafka: KafkaSessions, login: Login) -> None:
    """Return if the user may log in and describe the cluster; `Unavailable` or `Forbidden` if not."""
    if not await kafka.try_login(login, may_describe_cluster):
        raise Forbidden(f"the user {login.username!r} needs the right to describe the cluster")


def _basic(authorization: str) -> Login | None:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, separator, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Login(name, password) if separator else None
