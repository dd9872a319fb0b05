"""One login: the browser goes to the issuer, and comes back with a code, for which the console gets tokens.

The authorization code flow of OpenID Connect with PKCE (RFC 7636). `state` and a cookie bind the login to one browser.
`nonce` binds the ID token to the login. The verifier binds the code to this console.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, Entropy
from penstock_console.openid.issuer import Issuer, Refused, Tokens, error_word
from penstock_console.openid.settings import DEFAULT_LIMITS, OpenIdLimits

SECRET_BYTES = 32
_CODE = re.compile(r"[\x20-\x7e]+")  # RFC 6749, appendix A.11


class Departure(msgspec.Struct, frozen=True):
    """The address at the issuer, and the secret that the browser keeps in a cookie until it is back."""

    url: str
    browser: str


class _Open(msgspec.Struct, frozen=True, kw_only=True):
    browser: str
    nonce: str
    verifier: str
    target: str
    until_s: float


class CodeFlow:
    """The logins that have begun. Each can end once."""

    def __init__(
        self, issuer: Issuer, clock: Clock, entropy: Entropy, *, limits: OpenIdLimits = DEFAULT_LIMITS
    ) -> None:
        self.issuer = issuer
        self.login_s = limits.login_s
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._open: dict[str, _Open] = {}  # by state, the oldest first

    async def begin(self, target: str) -> Departure:
        """Begin a login that shows `target` in the end; `Unavailable` or `Invalid` if the issuer is of no use."""
        addresses = await self.issuer.addresses()
        self._remove_old()
        settings = self.issuer.settings
        state, nonce, browser, verifier = (self._secret() for _ in range(4))
        self._open[state] = _Open(
            browser=browser,
            nonce=nonce,
            verifier=verifier,
            target=target if len(target) <= self._limits.target_characters_max else "/",
            until_s=self._clock.monotonic_s() + self._limits.login_s,
        )
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": settings.redirect_url,
            "scope": settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        } | ({"audience": settings.audience} if settings.audience else {})
        place = addresses.authorization_endpoint
        return Departure(f"{place}{'&' if '?' in place else '?'}{urlencode(query)}", browser)

    async def end(self, browser: str, query: Mapping[str, str]) -> tuple[Tokens, str]:
        """The tokens of a browser that is back, and its target; `Invalid`, `Refused` or `Unavailable`."""
        found = self._open.pop(query.get("state", ""), None)
        is_own = found is not None and hmac.compare_digest(found.browser.encode(), browser.encode(errors="replace"))
        if found is None or not is_own or found.until_s <= self._clock.monotonic_s():
            raise Invalid("this login did not begin in this browser, or it took too long: log in again")
        if query.get("iss", self.issuer.settings.issuer) != self.issuer.settings.issuer:  # RFC 9207
            raise Invalid("another issuer has answered")
        if "error" in query:
            raise Refused(f"the issuer refuses the login: {error_word(query['error'])}")
        code = query.get("code", "")
        if not _CODE.fullmatch(code) or len(code) > self._limits.code_characters_max:
            raise Invalid("the issuer has sent no code")
        return await self.issuer.redeem(code, found.verifier, found.nonce), found.target

    def _remove_old(self) -> None:
        now_s = self._clock.monotonic_s()
        for state, each in list(self._open.items()):
            if each.until_s > now_s and len(self._open) < self._limits.logins_max:
                break
            del self._open[state]

    def _secret(self) -> str:
        return self._entropy.take(SECRET_BYTES).hex()
