"""Logins of clients at listeners that demand one: SaslHandshake, then SaslAuthenticate until the user is known.

Before the login a client may send ApiVersions, SaslHandshake and SaslAuthenticate only, one at a time. The connection
keeps to that, to the size of a frame and to the deadline; this module decides. After version 0 of SaslHandshake the
tokens come in frames without a header, as old clients send them. Each failure is answered after a delay, and then the
connection closes.

A session may have an end (KIP-368). Before it, the client logs in again on the same connection, as the same user and
with the same mechanism. After it, any other request closes the connection.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.contracts.acls import user_principal
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.api_versions import API as API_VERSIONS
from penstock.kafkawire.api.sasl_authenticate import API as SASL_AUTHENTICATE, SaslAuthenticateResponse
from penstock.kafkawire.api.sasl_handshake import API as SASL_HANDSHAKE, SaslHandshakeResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.clock import Clock
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.security.login.credentials import Verifiers
from penstock_gateway.security.login.exchange import Exchange, Identity, LoginFailed, Step
from penstock_gateway.security.login.failure_delays import DelayLimits, FailureDelays
from penstock_gateway.security.login.login_log import LoginLog

FAILED = "login_failed"  # the cause of the end of a connection
BEFORE_LOGIN = frozenset({API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})
AFTER_EXPIRY = frozenset({SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})
RAW_VERSION = 0  # of SaslHandshake: the tokens have no header

MakeExchange = Callable[[str], Exchange]  # from the tenant that clients put before their user, or ""
Mechanisms = Mapping[str, MakeExchange]  # by SASL name


class LoginLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of connections before their login, and the delays of failures."""

    frame_bytes_max: int = 64 * 1024  # the largest tokens are those of OAUTHBEARER, a few KiB
    login_s_max: float = 10.0  # from the connection to the end of the login, without the delay of a failure
    relogin_s_min: float = 1.0  # between two logins on one connection, as in Kafka
    delays: DelayLimits = DelayLimits()


@dataclass(slots=True)
class LoginState:
    """The state of one connection."""

    tenant: str = ""  # that the user's name in each login of the connection must have
    mechanism: str = ""  # of this login, or of the last one
    exchange: Exchange | None = None  # while a login is in progress
    is_raw: bool = False  # tokens come without a header
    failure: LoginFailed | None = None  # of the next token, which the client sends all the same
    began_s: float = -math.inf  # the last login on a session


class Logins:
    """The logins of one gateway."""

    def __init__(
        self,
        *,
        listeners: Mapping[str, Mechanisms],
        session_ms_max: int,
        clock: Clock,
        log: LoginLog,
        verifiers: Verifiers | None = None,
        limits: LoginLimits | None = None,
        delays: FailureDelays | None = None,
    ) -> None:
        """`listeners`: those that demand a login, with the mechanisms that each accepts, by their SASL names.

        After `session_ms_max` a client must log in again; 0: never, but a token must not expire.
        `verifiers`: of all users. `delays`: several clusters share them where a login chooses the cluster.
        """
        self._listeners = listeners
        self.session_ms_max = session_ms_max
        self._clock = clock
        self.log = log
        self.limits = limits or LoginLimits()
        self.verifiers = verifiers
        self._delays = delays if delays is not None else FailureDelays(self.limits.delays)

    def begin(self, client: Client) -> None:
        """Demand a login from a new client, if its listener does."""
        if client.listener in self._listeners:
            client.login_deadline_s = self._clock.monotonic_s() + self.limits.login_s_max

    def check(self, client: Client, api_key: int, api_name: str) -> None:
        """Raise `CloseConnection` for a request that the client may not send now."""
        if client.needs_login:
            if api_key not in BEFORE_LOGIN:
                raise CloseConnection(f"{api_name} before the login")
        elif client.session_end_s <= self._clock.monotonic_s() and api_key not in AFTER_EXPIRY:
            raise CloseConnection(f"the session of {user_principal(client.user)} has expired")

    def sends_raw_tokens(self, client: Client) -> bool:
        """Whether the next frame of a client without a login is a token without a header."""
        return client.part(LoginState).is_raw

    def handshake(self, client: Client, version: int, mechanism: str) -> SaslHandshakeResponse:
        """Choose the mechanism of a login, or of another login on a session that has an end."""
        accepted = self._listeners.get(client.listener, {})
        login = client.part(LoginState)
        if client.needs_login:
            if login.exchange is not None:
                client.closing_cause = FAILED
                return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        elif not self._may_login_again(client, login, version):
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        make = accepted.get(mechanism)
        if make is None:
            self.log.failed(client, "", "", "the mechanism is not accepted")
            client.closing_cause = FAILED
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(accepted))
        if not client.needs_login and mechanism != login.mechanism:
            login.failure = LoginFailed("another mechanism than before", client.user)
            self._record(client, login, login.failure)
        login.mechanism, login.exchange, login.is_raw = mechanism, make(login.tenant), version == RAW_VERSION
        return SaslHandshakeResponse(ErrorCode.NONE, list(accepted))

    def take_over(self, client: Client, tenant: str) -> None:
        """Begin the login of a client here: its first token names a tenant of this cluster."""
        login = client.part(LoginState)
        login.tenant = tenant
        login.exchange = self._listeners[client.listener][login.mechanism](tenant)

    async def authenticate(self, client: Client, token: bytes) -> SaslAuthenticateResponse:
        """Take the next token of a login, and answer it."""
        login = client.part(LoginState)
        if login.exchange is None:
            if client.needs_login:
                client.closing_cause = FAILED
            return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate without a SaslHandshake")
        try:
            step = await self._step(client, login, login.exchange, token)
        except LoginFailed as failure:
            client.closing_cause = FAILED
            text = failure.answer or f"Authentication failed: invalid credentials with SASL mechanism {login.mechanism}"
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        lifetime_ms = 0 if step.identity is None else self._complete(client, login, step.identity)
        return SaslAuthenticateResponse(auth_bytes=step.answer, session_lifetime_ms=lifetime_ms)

    async def take_raw_token(self, client: Client, token: bytes) -> bytes:
        """The answer to a token without a header; a failure closes the connection without an answer, as in Kafka."""
        login = client.part(LoginState)
        assert login.exchange is not None, "raw tokens come after a handshake"
        try:
            step = await self._step(client, login, login.exchange, token)
        except LoginFailed as failure:
            raise CloseConnection("the login failed") from failure
        if step.identity is not None:
            self._complete(client, login, step.identity)
        return step.answer

    def _may_login_again(self, client: Client, login: LoginState, version: int) -> bool:
        """Whether a client with a session may begin another login; if so, it begins now."""
        now_s = self._clock.monotonic_s()
        is_too_soon = now_s - login.began_s < self.limits.relogin_s_min
        if client.session_end_s == math.inf or version == RAW_VERSION or login.exchange is not None or is_too_soon:
            return False
        login.began_s = now_s
        return True

    async def _step(self, client: Client, login: LoginState, exchange: Exchange, token: bytes) -> Step:
        """The answer to a token. A failure is recorded, delayed and raised."""
        if login.failure is not None:
            raise login.failure
        try:
            step = await exchange.respond(token)
            self._check_session(client, login, step.identity)
        except LoginFailed as failure:
            await self._delay(client, self._record(client, login, failure))
            raise
        except Unavailable:
            self.log.undecided(login.mechanism)
            raise
        if step.failure is not None:
            login.failure = step.failure
            await self._delay(client, self._record(client, login, step.failure))
        return step

    def _check_session(self, client: Client, login: LoginState, identity: Identity | None) -> None:
        """Raise `LoginFailed` if a login on a session takes too long, or is another user's."""
        if client.needs_login:
            return
        if self._clock.monotonic_s() - login.began_s > self.limits.login_s_max:
            raise LoginFailed("the login on a session took too long", client.user)
        if identity is not None and identity.user != client.user:
            answer = "Cannot change principals during re-authentication"
            raise LoginFailed(f"{answer}, from {user_principal(client.user)}", identity.user, answer)

    def _record(self, client: Client, login: LoginState, failure: LoginFailed) -> float:
        """Record a failure; return the delay of its answer, in seconds."""
        self.log.failed(client, failure.user, login.mechanism, str(failure))
        return self._delays.record(client.host, self._clock.monotonic_s())

    async def _delay(self, client: Client, delay_s: float) -> None:
        client.login_deadline_s += delay_s
        await asyncio.sleep(delay_s)

    def _complete(self, client: Client, login: LoginState, identity: Identity) -> int:
        """Begin the session of a user; return its lifetime in ms, 0 if it has no end."""
        client.user, client.token_id = identity.user, identity.token_id
        client.login_deadline_s = math.inf
        login.exchange, login.is_raw = None, False
        lifetimes_ms = [self.session_ms_max] if self.session_ms_max else []
        if identity.expires_ms is not None:
            lifetimes_ms.append(max(identity.expires_ms - self._clock.now_ms(), 1))
        lifetime_ms = min(lifetimes_ms, default=0)
        client.session_end_s = self._clock.monotonic_s() + lifetime_ms / 1000 if lifetime_ms else math.inf
        self.log.succeeded(client, login.mechanism)
        return lifetime_ms


class HasLogins(Protocol):
    @property
    def logins(self) -> Logins: ...
