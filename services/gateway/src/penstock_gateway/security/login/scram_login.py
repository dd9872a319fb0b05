"""A login with SCRAM-SHA-256 or SCRAM-SHA-512: of a user, or with a delegation token (KIP-48)."""

import base64

from penstock.contracts.commands.security import ScramMechanism
from penstock.runtime.clock import Entropy
from penstock_gateway.security.delegation.token_verifiers import TokenVerifiers
from penstock_gateway.security.login.credentials import VerifierSource
from penstock_gateway.security.login.exchange import Identity, LoginFailed, Step, user_of
from penstock_gateway.security.login.scram import ScramServer, parse_client_first

NONCE_BYTES = 24


class ScramLogin:
    """The server's side of one login. An unknown user gets a made-up salt, and fails as a wrong password does."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        verifiers: VerifierSource,
        entropy: Entropy,
        tokens: TokenVerifiers | None = None,
        tenant: str = "",
    ) -> None:
        """`tenant`: clients put it before the name of the user. Delegation tokens cannot be used then."""
        self._mechanism = mechanism
        self._verifiers = verifiers
        self._entropy = entropy
        self._tokens = (tokens or None) if not tenant else None  # None also if they are off
        self._tenant = tenant
        self._name = ""
        self._is_token = False
        self._server: ScramServer | None = None

    async def respond(self, token: bytes) -> Step:
        if self._server is None:
            return await self._begin(token)
        if self._is_token:
            return self._finish_with_token(self._server, token)
        answer = self._server.finish(token)
        if self._verifiers.find(self._name, [self._mechanism]) != self._server.verifier:
            raise LoginFailed("the password was changed during the login", self._name)
        return Step(answer, Identity(self._name))

    async def _begin(self, token: bytes) -> Step:
        first = parse_client_first(token)
        self._name, self._is_token = user_of(first.user, self._tenant), first.is_token
        if not first.is_token:
            verifier = self._verifiers.find(self._name, [self._mechanism])
        elif self._tokens is None:
            raise LoginFailed("delegation tokens are off")
        else:
            verifier = await self._tokens.find(first.user, self._mechanism)
        nonce = base64.urlsafe_b64encode(self._entropy.take(NONCE_BYTES)).decode()
        self._server = ScramServer(first, verifier, nonce)
        return Step(self._server.server_first.encode())

    def _finish_with_token(self, server: ScramServer, message: bytes) -> Step:
        """The end of a login with a token. A failure names no user: an id is none, and may be anything."""
        assert self._tokens is not None, "a login with a token begins only if tokens are on"
        try:
            answer = server.finish(message)
        except LoginFailed as failure:
            raise LoginFailed(f"delegation token: {failure}", answer=failure.answer) from None
        found = self._tokens.valid(self._name)
        if found is None:
            raise LoginFailed("delegation token: it is expired or revoked")
        return Step(answer, Identity(found.owner, found.expiry_ms, found.token_id))
