"""An OpenID provider for tests: an issuer of tokens with discovery, the code flow with PKCE, and refresh tokens.

Each browser that comes is logged in as `user` at once. A test may change the answers.
"""

import contextlib
import hashlib
import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import aiohttp

from tests.testkit.servers.token_issuer import LIFETIME_S, Issuer

CLIENT_ID, CLIENT_SECRET = "penstock console", "s3cret: of the console"
AUTHORIZE, TOKEN, KEYS = "/authorize", "/token", "/keys"
DISCOVERY = "/.well-known/openid-configuration"


class OpenIdProvider:
    """The provider; `url` is its name as an issuer."""

    def __init__(self, url: str, issuer: Issuer, now_s: Callable[[], float]) -> None:
        self.url = url
        self.issuer = issuer
        self.user = "alice"
        self.lifetime_s = LIFETIME_S
        self.gives_refresh = False
        self.id_changes: dict[str, Any] = {}
        self.access_changes: dict[str, Any] = {}
        self.answer_changes: dict[str, Any] = {}
        self.broken: dict[str, tuple[int, bytes]] = {}  # by path, in place of an answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.given: list[str] = []  # all codes and tokens so far
        self._now_s = now_s
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: set[str] = set()

    def answer(self, path: str, fields: dict[str, str], authorization: str) -> tuple[int, bytes, str]:
        """The status, the body and the location of a redirect."""
        self.asked.append((path, fields))
        if path in self.broken:
            return *self.broken[path], ""
        if path == DISCOVERY:
            return 200, json.dumps(self.discovery()).encode(), ""
        if path == KEYS:
            return 200, self.issuer.key_set(), ""
        if path == AUTHORIZE:
            return 302, b"", self._come_back(fields)
        if path == TOKEN:
            status, found = self._tokens(fields, authorization)
            return status, json.dumps(found).encode(), ""
        return 404, b"", ""

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": self.url + AUTHORIZE,
            "token_endpoint": self.url + TOKEN,
            "jwks_uri": self.url + KEYS,
            "response_types_supported": ["code"],
        }

    def access_token(self, **changes: Any) -> str:
        """A token for gateways."""
        return self._signed(self.access_changes | changes)

    def _signed(self, changes: dict[str, Any]) -> str:
        now_s = self._now_s()
        fields = {"iss": self.url, "exp": int(now_s) + self.lifetime_s, "jti": str(len(self.given))} | changes
        return self.issuer.token(fields.pop("sub", self.user), now_s=now_s, **fields)

    def _come_back(self, fields: dict[str, str]) -> str:
        code = self._keep(f"code-{len(self.given)}")
        self._codes[code] = fields
        return f"{fields['redirect_uri']}?{urlencode({'code': code, 'state': fields['state'], 'iss': self.url})}"

    def _tokens(self, fields: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """RFC 6749, sections 4.1.3 and 6; a code and a refresh token are for one use."""
        if authorization != aiohttp.encode_basic_auth(quote(CLIENT_ID, safe=""), quote(CLIENT_SECRET, safe="")):
            return 401, {"error": "invalid_client"}
        if fields["grant_type"] == "refresh_token":
            if fields["refresh_token"] not in self._refresh:
                return 400, {"error": "invalid_grant"}
            self._refresh.remove(fields["refresh_token"])
            return 200, self._answer()
        begun = self._codes.get(fields["code"], {})
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_right = begun.get("code_challenge") == challenge and begun["code_challenge_method"] == "S256"
        if not is_right or begun["redirect_uri"] != fields["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        del self._codes[fields["code"]]
        claims = {"aud": CLIENT_ID, "nonce": begun["nonce"]} | self.id_changes
        return 200, self._answer() | {"id_token": self._keep(self._signed(claims))} | self.answer_changes

    def _answer(self) -> dict[str, Any]:
        found: dict[str, Any] = {"access_token": self._keep(self.access_token()), "token_type": "Bearer"}
        if self.gives_refresh:
            found["refresh_token"] = self._keep(f"refresh-{len(self.given)}")
            self._refresh.add(found["refresh_token"])
        return found

    def _keep(self, secret: str) -> str:
        self.given.append(secret)
        return secret


@contextlib.contextmanager
def providing(now_s: Callable[[], float] = time.time, issuer: Issuer | None = None) -> Iterator[OpenIdProvider]:
    """A provider that answers at a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._send(parts.path, parts.query)

        def do_POST(self) -> None:
            self._send(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _send(self, path: str, fields: str) -> None:
            authorization = self.headers["Authorization"] or ""
            status, content, location = provider.answer(path, dict(parse_qsl(fields)), authorization)
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the console has read enough
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output of tests stays short."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = OpenIdProvider(f"http://127.0.0.1:{server.server_port}", issuer or Issuer(), now_s)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="provider", daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
