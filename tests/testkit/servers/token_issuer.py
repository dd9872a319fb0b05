"""An issuer of tokens for tests: its keys, its JSON Web Key Set on a local HTTP server, and tokens signed by it."""

import contextlib
import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://issuer.example"
AUDIENCE = "penstock"
LIFETIME_S = 600


class Issuer:
    """Signs tokens with one RSA key and one EC key."""

    def __init__(self, name: str = "one") -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.name = name

    def public_keys(self) -> list[dict[str, Any]]:
        rsa_key = jwt.algorithms.RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True)
        ec_key = jwt.algorithms.ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True)
        return [rsa_key | {"kid": f"{self.name}-rsa", "use": "sig"}, ec_key | {"kid": f"{self.name}-ec"}]

    def key_set(self, *others: "Issuer") -> bytes:
        return json.dumps({"keys": [key for each in (self, *others) for key in each.public_keys()]}).encode()

    def token(self, user: str = "alice", algorithm: str = "RS256", *, now_s: float | None = None, **fields: Any) -> str:
        """A token of ten minutes; a field that is None is left out."""
        now_s = time.time() if now_s is None else now_s
        kind = "ec" if algorithm.startswith("ES") else "rsa"
        times = {"iat": int(now_s), "exp": int(now_s) + LIFETIME_S}
        all_fields = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, **times, **fields}
        return jwt.encode(
            {name: value for name, value in all_fields.items() if value is not None},
            self.ec if kind == "ec" else self.rsa,
            algorithm=algorithm,
            headers={"kid": f"{self.name}-{kind}"},
        )


@contextlib.contextmanager
def serving(issuer: Issuer, secrets: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of the issuer's keys while they are served.

    Users in `secrets` get tokens of themselves at `token_url` (RFC 6749, section 4.4).
    """
    users = {
        "Basic " + b64encode(f"{user}:{secret}".encode()).decode(): user for user, secret in (secrets or {}).items()
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, issuer.key_set())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            user = users.get(self.headers["Authorization"])
            if user is None:
                self._answer(401, b'{"error": "invalid_client"}')
            else:
                token = {"access_token": issuer.token(user), "token_type": "Bearer", "expires_in": LIFETIME_S}
                self._answer(200, json.dumps(token).encode())

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output of tests stays short."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="issuer", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def token_url(keys: str) -> str:
    """The address of tokens beside that of the keys."""
    return keys.removesuffix("keys") + "token"
