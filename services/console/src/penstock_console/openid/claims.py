"""The contents of an issuer's tokens (RFC 7519): the user of an access token, and the checks of an ID token."""

import re
from typing import Any

import jwt
import msgspec

from penstock.contracts.errors import Invalid

USER_CHARACTERS_MAX = 255
KEYS_MAX = 100
# No shared secrets: with those, each client of the issuer could make tokens.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_SECONDS_MAX = 2**43
_REASON_CHARACTERS_MAX = 200


class AccessClaims(msgspec.Struct, frozen=True):
    """The user that an access token names, and the time at which it ends."""

    username: str
    expires_ms: int


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


def access_claims(token: str, user_claim: str) -> AccessClaims:
    """The user and the end of an access token, without a check: gateways check it. `Invalid` if it has none."""
    if not _TOKEN.fullmatch(token):
        raise Invalid("the access token is no JSON Web Token, and gateways accept no other")
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Invalid("the access token is no JSON Web Token, and gateways accept no other") from None
    user = claims.get(user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= USER_CHARACTERS_MAX or not user.isprintable():
        raise Invalid(f"the access token's field {user_claim!r} is no user name")
    return AccessClaims(user, _expiry_ms(claims))


def check_id_token(
    token: str, key_set: bytes, *, issuer: str, client_id: str, nonce: str, now_ms: int, clock_skew_s: float
) -> None:
    """`Invalid` unless this issuer made the token for this client and this login (OpenID Connect Core, 3.1.3.7)."""
    try:
        header = jwt.get_unverified_header(token)
        key = _key(key_set, header)
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            issuer=issuer,
            audience=client_id,
            # The time is checked below, with the clock of this process.
            options={"require": ["exp", "sub"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except (jwt.PyJWTError, msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS_MAX]
        raise Invalid(f"the ID token is not valid: {reason}") from None
    if _expiry_ms(claims) + int(clock_skew_s * 1000) <= now_ms:
        raise Invalid("the ID token has expired")
    if claims.get("azp", client_id) != client_id:
        raise Invalid("the ID token is for another client")
    if claims.get("nonce") != nonce:
        raise Invalid("the ID token is of another login: its nonce differs")


def _key(key_set: bytes, header: dict[str, Any]) -> jwt.PyJWK:
    """The issuer's key that a header names; without a name, the only one that fits."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"the algorithm is not accepted: {algorithm!r:.40}")
    keys = msgspec.json.decode(key_set, type=_KeySet).keys[:KEYS_MAX]
    fitting = [
        each
        for each in keys
        if each.get("use", "sig") == "sig"
        and each.get("alg", algorithm) == algorithm
        and (each.get("kid") == key_id if key_id else each.get("kty") == _kind(algorithm))
    ]
    if len(fitting) != 1:
        raise ValueError("the issuer has no key for it")
    return jwt.PyJWK(fitting[0], algorithm)


def _kind(algorithm: str) -> str:
    return {"E": "EC", "R": "RSA", "P": "RSA"}[algorithm[0]] if algorithm != "EdDSA" else "OKP"


def _expiry_ms(claims: dict[str, Any]) -> int:
    seconds = claims.get("exp")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < _SECONDS_MAX:
        raise Invalid("the token has no expiry")
    return int(seconds * 1000)
