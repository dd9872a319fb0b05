"""The console's registration at an issuer, and the addresses that may be asked."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from penstock.contracts.errors import Invalid

CALLBACK = "/login/openid/callback"
DISCOVERY = "/.well-known/openid-configuration"
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


class OpenIdLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The waits for an issuer, the sizes of its answers, and how many logins are open."""

    timeout_s: float = 5.0
    answer_bytes_max: int = 256 * 1024
    discovery_s: float = 600.0  # the addresses of the issuer are read again after this time
    retry_s: float = 2.0  # after a failure to read them: a login begins without a user
    clock_skew_s: float = 30.0
    code_characters_max: int = 4_096
    # From the button until the issuer sends the browser back.
    login_s: float = 600.0
    logins_max: int = 10_000
    target_characters_max: int = 2_000


DEFAULT_LIMITS = OpenIdLimits()


class OpenIdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The issuer, and the console's registration there; "" is not set."""

    issuer: str
    client_id: str
    public_url: str
    client_secret: str = ""
    scope: str = "openid"
    audience: str = ""
    user_claim: str = "sub"

    def __repr__(self) -> str:
        return f"OpenIdSettings({self.issuer!r}, {self.client_id!r})"

    @property
    def redirect_url(self) -> str:
        """The address to which the issuer sends the browser back."""
        return self.console_url(CALLBACK)

    def console_url(self, path: str) -> str:
        """The address of a path of the console in browsers."""
        return self.public_url.rstrip("/") + path


def checked(settings: OpenIdSettings) -> OpenIdSettings:
    """The settings; `Invalid` if one is missing, or an address could be read on its way."""
    for name in ("issuer", "client_id", "public_url"):
        if not getattr(settings, name):
            raise Invalid(
                "a login by OpenID Connect needs PENSTOCK_OIDC_ISSUER, PENSTOCK_OIDC_CLIENT_ID and PENSTOCK_PUBLIC_URL"
            )
    if "openid" not in settings.scope.split():
        raise Invalid(f"the scope of a login by OpenID Connect has the word openid: {settings.scope!r}")
    check_address(settings.issuer)
    check_address(settings.public_url)
    if urlsplit(settings.public_url).path not in ("", "/"):
        raise Invalid(f"the console's public address is https://HOST or https://HOST:PORT: {settings.public_url!r}")
    return settings


def check_address(url: str) -> None:
    """`Invalid` unless the URL is https://..., or http://... of this machine."""
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:
        is_usable = False
    if not is_usable or parts.username is not None or parts.fragment:
        raise Invalid(f"this is no address for logins: {url!r:.200}")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS):
        raise Invalid(f"logins go over https, and over http on this machine only: {url!r:.200}")


def read_secret(path: str) -> str:
    """The first line of the file, "" without a file; `Invalid` if it cannot be read or is empty."""
    if not path:
        return ""
    try:
        secret = Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read the secret of the OpenID client: {type(error).__name__}: {path}") from None
    if not secret:
        raise Invalid(f"the file with the secret of the OpenID client is empty: {path}")
    return secret
