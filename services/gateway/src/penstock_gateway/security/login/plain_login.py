"""A login with PLAIN (RFC 4616): the client sends its password, which is checked against the user's SCRAM verifier.

A check takes milliseconds of CPU time, so a thread makes it. A few checks run at once, and a few more wait. The
passwords that fitted last are recognised by a keyed hash; a changed verifier makes another hash.
"""

import asyncio
import hmac
from collections import OrderedDict

import msgspec

from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.errors import Unavailable
from penstock.runtime.concurrency.ending import to_the_end
from penstock_gateway.security.login.credentials import VerifierSource
from penstock_gateway.security.login.exchange import Identity, LoginFailed, Step, user_of
from penstock_gateway.security.login.scram import is_password

PARTS = 3
KEY_BYTES = 32
MECHANISMS = (ScramMechanism.SHA_256, ScramMechanism.SHA_512)


class PasswordLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much work the passwords of clients may make."""

    at_once: int = 2  # threads
    waiting_max: int = 200  # others are closed and try again; each takes up to 10 ms
    recognised_max: int = 1_000  # passwords; some 200 bytes each


class PasswordChecker:
    """Checks passwords. `key` is secret and random, and of this process only."""

    def __init__(self, verifiers: VerifierSource, key: bytes, limits: PasswordLimits | None = None) -> None:
        self._verifiers = verifiers
        self._key = key
        self._limits = limits or PasswordLimits()
        self._threads = asyncio.Semaphore(self._limits.at_once)
        self._waiting = 0
        self._recognised: OrderedDict[bytes, None] = OrderedDict()
        self.checks = 0  # that took a thread

    async def is_right(self, user: str, password: bytes) -> bool:
        """Whether this is the user's password; `Unavailable` if too many others are being checked."""
        verifier = self._verifiers.find(user, MECHANISMS)
        proof = self._proof(user, password, verifier)
        if proof in self._recognised:
            self._recognised.move_to_end(proof)
            return True
        if not await self._check(verifier, password):
            return False
        if self._verifiers.find(user, MECHANISMS) != verifier:
            return False  # changed during the check
        self._recognised[proof] = None
        if len(self._recognised) > self._limits.recognised_max:
            self._recognised.popitem(last=False)
        return True

    async def _check(self, verifier: ScramVerifier, password: bytes) -> bool:
        if self._waiting >= self._limits.waiting_max:
            raise Unavailable("too many passwords are being checked")
        self._waiting += 1
        try:
            async with self._threads:
                self.checks += 1
                return await to_the_end(asyncio.to_thread(is_password, verifier, password))
        finally:
            self._waiting -= 1

    def _proof(self, user: str, password: bytes, verifier: ScramVerifier) -> bytes:
        parts = (user.encode(), password, verifier.stored_key)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")


class PlainLogin:
    """The server's side of one login."""

    def __init__(self, passwords: PasswordChecker, tenant: str = "") -> None:
        """`tenant`: clients put it before the name of the user."""
        self._passwords = passwords
        self._tenant = tenant

    async def respond(self, token: bytes) -> Step:
        name, password = parse_plain(token)
        user = user_of(name, self._tenant)
        if not await self._passwords.is_right(user, password):
            raise LoginFailed("wrong password or unknown user", user)
        return Step(b"", Identity(user))


def parse_plain(token: bytes) -> tuple[str, bytes]:
    """The user and the password of a message; `LoginFailed` if it is malformed or acts for another user."""
    parts = token.split(b"\0")
    if len(parts) != PARTS:
        raise LoginFailed("malformed message")
    try:
        authorization_id, user, _ = (part.decode() for part in parts)
    except UnicodeDecodeError as error:
        raise LoginFailed("the message is not UTF-8") from error
    if not user or not parts[2]:
        raise LoginFailed("without a user or without a password", user)
    if authorization_id and authorization_id != user:
        raise LoginFailed("the authorization id is another user", user)
    return user, parts[2]
