"""The bearer token that HTTP clients need for all pages but the health of a process."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from penstock.contracts.errors import Invalid

OPEN_PATHS = ("/ready", "/health")  # for probes, which have no secrets
TOKEN_CHARACTERS_MIN = 16
CHALLENGE = 'Bearer realm="penstock", Basic realm="penstock"'  # browsers know Basic only


def read_token(path: str) -> str:
    """The token in the first line of the file; `Invalid` if there is none, or it is too short."""
    try:
        token = Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(
            f"cannot read the token of HTTP in {path}: {getattr(error, 'strerror', 'it is no text')}"
        ) from error
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii():
        raise Invalid(f"the token of HTTP in {path} must have at least {TOKEN_CHARACTERS_MIN} ASCII characters")
    return token


def require_token(path: str) -> Middleware:
    """A middleware that answers 401 without the token.

    The file is read at each request, so a token can be replaced. The token comes as `Authorization: Bearer TOKEN`, or
    as the password of any user of `Basic`.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in OPEN_PATHS or _is_right(request.headers.get("Authorization", ""), path):
            return await handler(request)
        raise web.HTTPUnauthorized(headers={"WWW-Authenticate": CHALLENGE})

    return check


def _is_right(given: str, path: str) -> bool:
    try:
        token = read_token(path)
    except Invalid:  # it was read at the start; without it, no request is right
        return False
    return hmac.compare_digest(_digest(_token_in(given)), _digest(token))


def _token_in(given: str) -> str:
    """The token in an Authorization header, "" if there is none."""
    scheme, _, value = given.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _digest(text: str) -> bytes:
    """Of the same length for all texts, so that the comparison takes the same time."""
    return hashlib.sha256(text.encode(errors="replace")).digest()
