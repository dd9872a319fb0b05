"""Users for tests of logins, and the client's side of the mechanisms."""

import base64
import hashlib
import hmac
from collections.abc import Iterable

from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.queries.security import User
from penstock.contracts.scram_keys import HASHES, verifier_of_password
from penstock_gateway.security.login.scram import SCRAM_NAMES

SALT = b"1qaz2wsx3edc4rfv5tgb6yhn7u"


class FakeUsers:
    """The users that a test adds."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.is_known = is_known
        self.sequence = 1
        self._users: dict[str, dict[ScramMechanism, ScramVerifier]] = {}

    def add(self, name: str, password: str, *mechanisms: ScramMechanism, iterations: int = 4096) -> None:
        for mechanism in mechanisms or tuple(ScramMechanism):
            verifier = verifier_of_password(mechanism, password.encode(), SALT, iterations)
            self._users.setdefault(name, {})[mechanism] = verifier
        self.sequence += 1

    def remove(self, name: str) -> None:
        del self._users[name]
        self.sequence += 1

    def verifier(self, user: str, mechanism: ScramMechanism) -> ScramVerifier | None:
        return self._users.get(user, {}).get(mechanism)

    def users(self) -> Iterable[User]:
        return [User(name, list(verifiers.values())) for name, verifiers in self._users.items()]


class ScramClient:
    """The client's side of SCRAM, written from RFC 5802."""

    def __init__(self, mechanism: str, user: str, password: str, *, extensions: str = "") -> None:
        self._hash = HASHES[SCRAM_NAMES[mechanism]]
        self._password = password.encode()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r=fyko+d2lbbFgONRv9qkxdawL{extensions}"
        self.first = f"n,,{self._bare}".encode()
        self.salt, self.iterations = b"", 0

    def final(self, server_first: bytes) -> bytes:
        """The final message to the server's first message."""
        parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
        self.salt, self.iterations = base64.b64decode(parts["s"]), int(parts["i"])
        unproven = f"c=biws,r={parts['r']}"
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, self.salt, self.iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signed = f"{self._bare},{server_first.decode()},{unproven}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return unproven.encode() + b",p=" + base64.b64encode(proof)

    def is_server(self, server_final: bytes) -> bool:
        """Whether the server has proved that it has the user's verifier."""
        return server_final == b"v=" + base64.b64encode(self._signature)


def bearer(token: str, authorization_id: str = "") -> bytes:
    """A client's message of OAUTHBEARER."""
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()
