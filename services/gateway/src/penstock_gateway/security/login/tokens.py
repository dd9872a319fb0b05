"""Checks the tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519) that a known issuer has signed."""

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock_gateway.security.login.exchange import Identity, LoginFailed

if TYPE_CHECKING:  # imported with the first token, because few gateways have this login
    import jwt

USER_CHARACTERS_MAX = 255
REASON_CHARACTERS_MAX = 200
MS_MAX = 2**53  # later expiries do not matter


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that a token must fit."""

    issuer: str
    audiences: tuple[str, ...]  # one of these
    algorithms: tuple[str, ...]
    clock_skew_s: float = 30.0
    user_claim: str = "sub"


class Keys(Protocol):
    """The keys of the issuer."""

    async def find(self, key_id: str, algorithm: str) -> "jwt.PyJWK | None": ...


async def check_token(token: str, rules: TokenRules, keys: Keys, now_ms: int) -> Identity:
    """The user of a token; `LoginFailed` if the token is not right, `Unavailable` while the keys are not known."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in rules.algorithms:
            raise LoginFailed(f"the token's algorithm is not accepted: {algorithm!r:.40}")
        key = await keys.find(key_id if isinstance(key_id, str) else "", str(algorithm))
        if key is None:
            raise LoginFailed("the token's key is unknown")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(rules.algorithms),
            issuer=rules.issuer,
            audience=rules.audiences,
            # The times are checked below, with the clock of this process.
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_sub": False},
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:  # the last ones for hostile JSON
        raise LoginFailed(f"the token is not valid: {error}"[:REASON_CHARACTERS_MAX]) from error
    user = _user(claims, rules.user_claim)
    return Identity(user, _expiry_ms(claims, user, rules, now_ms))


def _user(claims: dict[str, Any], claim: str) -> str:
    user = claims.get(claim)
    if not isinstance(user, str) or not 0 < len(user) <= USER_CHARACTERS_MAX or not user.isprintable():
        raise LoginFailed(f"the token's field {claim!r} is no user name")
    return user


def _expiry_ms(claims: dict[str, Any], user: str, rules: TokenRules, now_ms: int) -> int:
    """The expiry by the clock of this process: a clock that runs ahead of the issuer's gets the clock skew added."""
    expires_ms, skew_ms = _ms(claims, "exp", user), int(rules.clock_skew_s * 1000)
    if expires_ms is None:
        raise LoginFailed("the token has no expiry", user)
    if expires_ms + skew_ms <= now_ms:
        raise LoginFailed("the token has expired", user)
    for claim in ("nbf", "iat"):
        from_ms = _ms(claims, claim, user)
        if from_ms is not None and from_ms - skew_ms > now_ms:
            raise LoginFailed(f"the token is not valid yet ({claim})", user)
    return expires_ms if expires_ms > now_ms else expires_ms + skew_ms


def _ms(claims: dict[str, Any], claim: str, user: str) -> int | None:
    seconds = claims.get(claim)
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not abs(seconds) < MS_MAX / 1000:
        raise LoginFailed(f"the token's field {claim!r} is no time", user)
    return int(seconds * 1000)
