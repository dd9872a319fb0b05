"""Makes the SCRAM verifiers of delegation tokens, and checks that a token is valid when its login ends.

A verifier takes milliseconds of CPU time, so a thread makes it, and the last ones are kept. An unknown id gets a
verifier in the same way. So a client cannot find out ids without their passwords.
"""

import asyncio
from collections import OrderedDict

import msgspec

from penstock.contracts.commands.delegation_tokens import DelegationToken
from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.errors import Unavailable
from penstock.contracts.scram_keys import verifier_of_password
from penstock.contracts.security_rules import ITERATIONS_MIN
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.ending import to_the_end
from penstock_gateway.security.delegation.token_cache import TokenCache, is_void
from penstock_gateway.security.delegation.token_keys import TokenKeys, password_of


class VerifierLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much work logins with tokens may make."""

    at_once: int = 2  # threads
    waiting_max: int = 200  # others are closed and try again; each takes up to 10 ms
    kept_max: int = 2_000  # verifiers of existing tokens; some 500 bytes each


class TokenVerifiers:
    """The verifiers of the tokens of one gateway."""

    def __init__(self, cache: TokenCache, keys: TokenKeys, clock: Clock, limits: VerifierLimits | None = None) -> None:
        self._cache = cache
        self._keys = keys
        self._clock = clock
        self._limits = limits or VerifierLimits()
        self._threads = asyncio.Semaphore(self._limits.at_once)
        self._waiting = 0
        self._kept: OrderedDict[tuple[str, str, ScramMechanism], ScramVerifier] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether clients can log in with tokens."""
        return bool(self._keys)

    def valid(self, token_id: str) -> DelegationToken | None:
        """The token with this id, None if it is unknown, expired or revoked."""
        token = self._cache.find(token_id)
        return None if token is None or is_void(token, self._clock.now_ms()) else token

    async def find(self, token_id: str, mechanism: ScramMechanism) -> ScramVerifier:
        """The verifier of a token, or of an unknown id; `Unavailable` while tokens are not known, or under load."""
        if not self._cache.is_known:
            raise Unavailable("the delegation tokens are not known yet")
        token = self._cache.find(token_id)
        key_id = self._keys.newest_id if token is None else token.key_id
        token_hmac = self._keys.hmac(token_id, key_id)
        if token_hmac is None:  # its key was removed here, so it fails as an unknown one
            token, key_id = None, self._keys.newest_id
            token_hmac = self._keys.hmac(token_id, key_id)
        assert token_hmac is not None, "callers ask only if there are keys"
        place = (token_id, key_id, mechanism)
        verifier = self._kept.get(place)
        if verifier is None:
            verifier = await self._made(mechanism, password_of(token_hmac), self._keys.salt(token_id, key_id))
            if token is not None:
                self._keep(place, verifier)
        return verifier

    async def _made(self, mechanism: ScramMechanism, password: bytes, salt: bytes) -> ScramVerifier:
        if self._waiting >= self._limits.waiting_max:
            raise Unavailable("too many verifiers of delegation tokens are being made")
        self._waiting += 1
        try:
            async with self._threads:
                arguments = mechanism, password, salt, ITERATIONS_MIN
                return await to_the_end(asyncio.to_thread(verifier_of_password, *arguments))
        finally:
            self._waiting -= 1

    def _keep(self, place: tuple[str, str, ScramMechanism], verifier: ScramVerifier) -> None:
        self._kept[place] = verifier
        if len(self._kept) > self._limits.kept_max:
            self._kept.popitem(last=False)
