"""A login with OAUTHBEARER (RFC 7628): the client sends a token of an issuer that this gateway trusts.

After a wrong token the client gets a short JSON text, as in Kafka. It answers with one byte, and then the login fails.
Extensions (KIP-342) are ignored.
"""

import re
from collections.abc import Callable

from penstock_gateway.security.login.exchange import LoginFailed, Step
from penstock_gateway.security.login.tokens import Keys, TokenRules, check_token

ERROR_ANSWER = '{"status":"invalid_token"}'
_MESSAGE = re.compile(r"n,(?:a=(?P<authzid>[^,\0\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01")
_BEARER = re.compile(r"(?i:bearer) +(?P<token>[A-Za-z0-9._~+/-]+=*)")


class OAuthBearerLogin:
    """The server's side of one login."""

    def __init__(self, rules: TokenRules, keys: Keys, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms

    async def respond(self, token: bytes) -> Step:
        authorization_id, bearer = parse_message(token)
        try:
            identity = await check_token(bearer, self._rules, self._keys, self._now_ms())
            if authorization_id and authorization_id != identity.user:
                raise LoginFailed("the authorization id is another user", identity.user)
        except LoginFailed as failure:
            answered = LoginFailed(str(failure), failure.user, ERROR_ANSWER)
            return Step(ERROR_ANSWER.encode(), failure=answered)
        return Step(b"", identity)


def parse_message(message: bytes) -> tuple[str, str]:
    """The authorization id, which may be empty, and the token; `LoginFailed` if the message is malformed."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError as error:
        raise LoginFailed("the message is not UTF-8") from error
    if found is None:
        raise LoginFailed("malformed message")
    pairs = [pair.partition("=") for pair in found["pairs"][:-1].split("\x01")]
    values = [value for key, _, value in pairs if key == "auth"]
    bearer = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if bearer is None:
        raise LoginFailed("malformed message: one bearer token is expected")
    return found["authzid"] or "", bearer["token"]
