"""Builds the logins of a gateway from its settings."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from penstock.contracts.commands.security import ScramMechanism
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, Entropy
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.audit_trail import AuditTrail
from penstock_gateway.security.delegation.token_verifiers import TokenVerifiers
from penstock_gateway.security.login.credentials import Credentials, TenantDecoys, Verifiers, VerifierSource
from penstock_gateway.security.login.exchange import Exchange
from penstock_gateway.security.login.failure_delays import FailureDelays
from penstock_gateway.security.login.json_web_keys import ALGORITHMS, KeySet, source_of
from penstock_gateway.security.login.login_log import LoginLog
from penstock_gateway.security.login.logins import HasLogins, LoginLimits, Logins, MakeExchange
from penstock_gateway.security.login.oauth_bearer import OAuthBearerLogin
from penstock_gateway.security.login.plain_login import KEY_BYTES, PasswordChecker, PlainLogin
from penstock_gateway.security.login.scram import SCRAM_NAMES
from penstock_gateway.security.login.scram_login import ScramLogin
from penstock_gateway.security.login.tenant_logins import TenantLogins
from penstock_gateway.security.login.tokens import TokenRules

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (*SCRAM_NAMES, PLAIN, OAUTHBEARER)
SECRET_CHARACTERS_MIN = 16


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of OAUTHBEARER as text."""

    jwks_endpoint_url: str = ""
    jwks_endpoint_refresh_ms: int = 3_600_000
    expected_issuer: str = ""
    expected_audience: str = ""  # several are separated by commas
    clock_skew_seconds: int = 30
    sub_claim_name: str = "sub"
    algorithms: str = ",".join(ALGORITHMS)


class LoginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of logins as text."""

    enabled_mechanisms: str = ",".join(SCRAM_NAMES)
    plain_without_tls: bool = False
    login_secret: str = ""
    connections_max_reauth_ms: int = 0
    oauth: OAuthSettings = OAuthSettings()


def check_login_settings(
    settings: LoginSettings, listeners: Mapping[str, bool], by_tenant: Collection[str] = ()
) -> None:
    """Raise `Invalid` with one sentence if a setting is wrong.

    `listeners`: those that demand a login, and whether each has TLS. `by_tenant`: where it chooses the cluster.
    """
    for listener in by_tenant:
        if listener not in listeners:
            raise Invalid(
                f"a login chooses the cluster of {listener}, so it must have the protocol SASL_SSL or SASL_PLAINTEXT"
            )
    names = _names("sasl_enabled_mechanisms", settings.enabled_mechanisms, MECHANISMS)
    if 0 < len(settings.login_secret) < SECRET_CHARACTERS_MIN:
        raise Invalid(f"sasl_login_secret must have at least {SECRET_CHARACTERS_MIN} characters, or none")
    if OAUTHBEARER in names:
        _check_oauth(settings.oauth)
    for listener, has_tls in listeners.items():
        offered = [name for name in names if _is_offered(name, has_tls, settings)]
        if listener in by_tenant and offered == [OAUTHBEARER]:
            raise Invalid(f"tokens name no tenant, so that the listener {listener} cannot offer OAUTHBEARER")
        if not offered:
            raise Invalid(f"the listener {listener} has no TLS, so that it cannot offer PLAIN, and no other mechanism")


def make_logins(
    settings: LoginSettings,
    listeners: Mapping[str, bool],
    *,
    cluster: str,
    credentials: Credentials,
    clock: Clock,
    entropy: Entropy,
    metrics: GatewayMetrics,
    limits: LoginLimits | None = None,
    audit: AuditTrail | None = None,
    tokens: TokenVerifiers | None = None,
    by_tenant: Collection[str] = (),
    delays: FailureDelays | None = None,
) -> tuple[Logins, KeySet | None]:
    """The logins of these listeners, and the keys of OAUTHBEARER if it is used; the caller runs the keys.

    `tokens`: the verifiers of delegation tokens, which only the SCRAM mechanisms accept.
    `listeners`: those that demand a login, and whether each has TLS. `by_tenant`: where it chooses the cluster.
    `delays`: those that the clusters of a process share.
    """
    check_login_settings(settings, listeners, by_tenant)
    verifiers = Verifiers(credentials, _secret(settings, cluster, entropy))
    made = _with_passwords(verifiers, entropy, tokens)
    names = _names("sasl_enabled_mechanisms", settings.enabled_mechanisms, MECHANISMS)
    keys = None
    if OAUTHBEARER in names:
        rules = _token_rules(settings.oauth)
        keys = KeySet(
            source_of(settings.oauth.jwks_endpoint_url),
            algorithms=rules.algorithms,
            refresh_s=settings.oauth.jwks_endpoint_refresh_ms / 1000,
            monotonic_s=clock.monotonic_s,
        )
        made[OAUTHBEARER] = _oauth(rules, keys, clock)
    logins = Logins(
        listeners={
            listener: {
                name: made[name]
                for name in names
                if _is_offered(name, has_tls, settings) and (name != OAUTHBEARER or listener not in by_tenant)
            }
            for listener, has_tls in listeners.items()
        },
        session_ms_max=settings.connections_max_reauth_ms,
        clock=clock,
        log=LoginLog(metrics, clock.monotonic_s, audit=audit, is_user=_is_user(credentials)),
        verifiers=verifiers,
        limits=limits,
        delays=delays,
    )
    return logins, keys


def make_tenant_logins(
    settings: LoginSettings,
    listeners: Mapping[str, bool],
    *,
    find: Callable[[str], HasLogins | None],
    served: Callable[[], Sequence[Verifiers]],
    clock: Clock,
    entropy: Entropy,
    metrics: GatewayMetrics,
    delays: FailureDelays,
    limits: LoginLimits | None = None,
) -> TenantLogins:
    """The logins of the listeners where they choose the cluster.

    `find` returns the gateway of a tenant. `served`: the verifiers of all clusters.
    """
    decoys = TenantDecoys(served, _secret(settings, "", entropy))
    made = _with_passwords(decoys, entropy, None)
    names = _names("sasl_enabled_mechanisms", settings.enabled_mechanisms, MECHANISMS)
    return TenantLogins(
        find,
        listeners={
            listener: {name: made[name] for name in names if name in made and _is_offered(name, has_tls, settings)}
            for listener, has_tls in listeners.items()
        },
        session_ms_max=settings.connections_max_reauth_ms,
        clock=clock,
        log=LoginLog(metrics, clock.monotonic_s),
        limits=limits,
        delays=delays,
    )


def _secret(settings: LoginSettings, cluster: str, entropy: Entropy) -> bytes:
    secret = settings.login_secret.encode() or entropy.take(KEY_BYTES)
    return hashlib.sha256(cluster.encode() + b"\0" + secret).digest()


def _with_passwords(
    verifiers: VerifierSource, entropy: Entropy, tokens: TokenVerifiers | None
) -> dict[str, MakeExchange]:
    """The mechanisms with passwords, by name."""
    made = {name: _scram(verifiers, entropy, name, tokens) for name in SCRAM_NAMES}
    passwords = PasswordChecker(verifiers, entropy.take(KEY_BYTES))
    made[PLAIN] = lambda tenant: PlainLogin(passwords, tenant)
    return made


def _is_user(credentials: Credentials) -> Callable[[str, str], bool]:
    """Whether a name in a login is that of a user; in a token the issuer has signed it."""

    def is_user(name: str, mechanism: str) -> bool:
        known = (credentials.verifier(name, each) is not None for each in ScramMechanism)
        return mechanism == OAUTHBEARER or any(known)

    return is_user


def _scram(verifiers: VerifierSource, entropy: Entropy, name: str, tokens: TokenVerifiers | None) -> MakeExchange:
    return lambda tenant: ScramLogin(SCRAM_NAMES[name], verifiers, entropy, tokens, tenant)


def _oauth(rules: TokenRules, keys: KeySet, clock: Clock) -> MakeExchange:
    def make(tenant: str) -> Exchange:
        assert not tenant, "tokens name no tenant"
        return OAuthBearerLogin(rules, keys, clock.now_ms)

    return make


def _is_offered(name: str, has_tls: bool, settings: LoginSettings) -> bool:
    """Passwords and tokens must not cross a network in plain text; an issuer's tokens end soon, passwords do not."""
    return has_tls or name != PLAIN or settings.plain_without_tls


def _check_oauth(settings: OAuthSettings) -> None:
    for name in ("jwks_endpoint_url", "expected_issuer", "expected_audience", "sub_claim_name"):
        if not getattr(settings, name).strip():
            raise Invalid(f"OAUTHBEARER needs the setting sasl_oauthbearer_{name}")
    source_of(settings.jwks_endpoint_url)
    _names("sasl_oauthbearer_algorithms", settings.algorithms, ALGORITHMS)


def _token_rules(settings: OAuthSettings) -> TokenRules:
    return TokenRules(
        issuer=settings.expected_issuer.strip(),
        audiences=tuple(_parts(settings.expected_audience)),
        algorithms=tuple(_names("sasl_oauthbearer_algorithms", settings.algorithms, ALGORITHMS)),
        clock_skew_s=settings.clock_skew_seconds,
        user_claim=settings.sub_claim_name.strip(),
    )


def _names(setting: str, text: str, known: tuple[str, ...]) -> list[str]:
    """The names of a list, in its order; `Invalid` without any, or with unknown ones."""
    names = _parts(text)
    for name in names:
        if name not in known:
            raise Invalid(f"{setting}: {name!r} is not supported, there are {', '.join(known)}")
    if not names:
        raise Invalid(f"{setting} must have at least one of {', '.join(known)}")
    return list(dict.fromkeys(names))


def _parts(text: str) -> list[str]:
    return [part for part in (each.strip() for each in text.split(",")) if part]
