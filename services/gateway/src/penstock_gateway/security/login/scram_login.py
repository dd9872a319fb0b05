"""A login with SCRAM-SHA-256 or SCRAM-SHA-512."""

import base64

from penstock.contracts.commands.security import ScramMechanism
from penstock.runtime.clock import Entropy
from penstock_gateway.security.login.credentials import Verifiers
from penstock_gateway.security.login.exchange import Identity, LoginFailed, Step
from penstock_gateway.security.login.scram import ScramServer, parse_client_first

NONCE_BYTES = 24


class ScramLogin:
    """The server's side of one login. An unknown user gets a made-up salt, and fails as a wrong password does."""

    def __init__(self, mechanism: ScramMechanism, verifiers: Verifiers, entropy: Entropy) -> None:
        self._mechanism = mechanism
        self._verifiers = verifiers
        self._entropy = entropy
        self._user = ""
        self._server: ScramServer | None = None

    async def respond(self, token: bytes) -> Step:
        if self._server is None:
            return self._begin(token)
        answer = self._server.finish(token)
        if self._verifiers.find(self._user, [self._mechanism]) != self._server.verifier:
            raise LoginFailed("the password was changed during the login", self._user)
        return Step(answer, Identity(self._user))

    def _begin(self, token: bytes) -> Step:
        first = parse_client_first(token)
        self._user = first.user
        verifier = self._verifiers.find(first.user, [self._mechanism])
        nonce = base64.urlsafe_b64encode(self._entropy.take(NONCE_BYTES)).decode()
        self._server = ScramServer(first, verifier, nonce)
        return Step(self._server.server_first.encode())
