"""The security of each listener: its protocol, and the files and rules of its TLS. Pure.

The settings have Kafka's names with underscores. One setting, `listener_settings`, changes others for one listener.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.contracts.errors import Invalid

PROTOCOL_MAP = "listener_security_protocol_map"
LISTENER_SETTINGS = "listener_settings"


class SecurityProtocol(enum.Enum):
    """How a listener protects its connections, and whether it demands a login. The names are Kafka's."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether the bytes of its connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        """Whether each connection begins with a SASL login."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ClientAuth(enum.Enum):
    """Whether clients show a certificate of their own."""

    NONE = "none"
    REQUESTED = "requested"  # a client without one is anonymous
    REQUIRED = "required"


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of TLS as text, with the names of `GatewayConfig`; empty: not given."""

    ssl_keystore_certificate_chain: str = ""
    ssl_keystore_key: str = ""
    ssl_truststore_certificates: str = ""
    ssl_client_auth: str = ClientAuth.NONE.value
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_principal_mapping_rules: str = "DEFAULT"


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings of one listener's TLS. All files are PEM files."""

    certificate_chain: str  # path; the listener's certificate is the first in it
    key: str  # path
    trusted_certificates: str = ""  # path; the authorities of clients, empty: clients show no certificate
    client_auth: ClientAuth = ClientAuth.NONE
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    principal_mapping_rules: str = "DEFAULT"


class ListenerSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """One listener's security."""

    name: str
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsFiles | None = None  # of a protocol with TLS


VERSIONS = ("TLSv1.2", "TLSv1.3")
_GIVEN_ONLY_FOR_TLS = ("ssl_keystore_certificate_chain", "ssl_keystore_key", "ssl_truststore_certificates")


def listener_securities(
    names: Sequence[str], protocol_map: str, settings: TlsSettings, listener_settings: str
) -> dict[str, ListenerSecurity]:
    """The security of each listener, by name; `Invalid` with one sentence if a setting is wrong.

    Without a map, a listener has the protocol of its name, and PLAINTEXT if its name is no protocol. A map must
    name every listener: a name that was written wrongly must not become plain text.
    """
    protocols = _protocols(names, protocol_map)
    own = _listener_settings(names, listener_settings)
    if not any(protocol.has_tls for protocol in protocols.values()):
        _check_unused(settings)
    found = {}
    for name in names:
        protocol, changes = protocols[name], own.get(name, {})
        if changes and not protocol.has_tls:
            raise Invalid(f"{LISTENER_SETTINGS}: {name} has the protocol {protocol.value}, which has no TLS")
        tls = _tls_files(name, protocol, settings, changes) if protocol.has_tls else None
        found[name] = ListenerSecurity(name=name, protocol=protocol, tls=tls)
    return found


def _protocols(names: Sequence[str], text: str) -> dict[str, SecurityProtocol]:
    given: dict[str, SecurityProtocol] = {}
    for item in _items(text, ","):
        name, colon, value = (part.strip().upper() for part in item.partition(":"))
        if not colon or not name:
            raise Invalid(f"{PROTOCOL_MAP} must be NAME:PROTOCOL, separated by commas: {item!r}")
        if value not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise Invalid(f"{PROTOCOL_MAP}: {value!r} is no security protocol, there are {known}")
        if name in given:
            raise Invalid(f"{PROTOCOL_MAP} must have different names: {name} occurs twice")
        given[name] = SecurityProtocol[value]
    if not given:
        return {name: SecurityProtocol.__members__.get(name, SecurityProtocol.PLAINTEXT) for name in names}
    for name in names:
        if name not in given:
            raise Invalid(f"{PROTOCOL_MAP} has no security protocol for the listener {name}")
    return {name: given[name] for name in names}


def _listener_settings(names: Sequence[str], text: str) -> dict[str, dict[str, str]]:
    """The settings of single listeners, by listener and setting."""
    found: dict[str, dict[str, str]] = {}
    for item in _items(text, ";"):
        key, equals, value = (part.strip() for part in item.partition("="))
        name, dot, setting = key.partition(".")
        name = name.upper()
        if not equals or not dot:
            raise Invalid(f"{LISTENER_SETTINGS} must be NAME.setting=value, separated by semicolons: {item!r}")
        if name not in names:
            raise Invalid(f"{LISTENER_SETTINGS}: {name} is no listener; there are {', '.join(names)}")
        if setting not in TlsSettings.__struct_fields__:
            known = ", ".join(TlsSettings.__struct_fields__)
            raise Invalid(f"{LISTENER_SETTINGS}: {setting!r} is no setting of a listener, there are {known}")
        if setting in found.setdefault(name, {}):
            raise Invalid(f"{LISTENER_SETTINGS} has {name}.{setting} twice")
        found[name][setting] = value
    return found


def _check_unused(settings: TlsSettings) -> None:
    """A gateway with a certificate that no listener uses would serve plain text by mistake."""
    for name in _GIVEN_ONLY_FOR_TLS:
        if getattr(settings, name):
            raise Invalid(f"{name} is given, but no listener has the protocol SSL or SASL_SSL")


def _tls_files(
    listener: str, protocol: SecurityProtocol, settings: TlsSettings, changes: Mapping[str, str]
) -> TlsFiles:
    if protocol.has_login:  # KIP-684: with a login, only a listener's own setting asks for client certificates
        settings = msgspec.structs.replace(settings, ssl_client_auth=ClientAuth.NONE.value)
    chosen = msgspec.structs.replace(settings, **changes)
    for name in ("ssl_keystore_certificate_chain", "ssl_keystore_key"):
        if not getattr(chosen, name):
            raise Invalid(f"listener {listener} has the protocol {protocol.value} and needs {name}, the path of a file")
    client_auth = _client_auth(listener, chosen.ssl_client_auth)
    if client_auth is not ClientAuth.NONE and not chosen.ssl_truststore_certificates:
        raise Invalid(
            f"listener {listener}: ssl_client_auth={client_auth.value} needs ssl_truststore_certificates, "
            "the path of a file with the authorities of clients"
        )
    return TlsFiles(
        certificate_chain=chosen.ssl_keystore_certificate_chain,
        key=chosen.ssl_keystore_key,
        trusted_certificates=chosen.ssl_truststore_certificates if client_auth is not ClientAuth.NONE else "",
        client_auth=client_auth,
        versions=_versions(listener, chosen.ssl_enabled_protocols),
        principal_mapping_rules=chosen.ssl_principal_mapping_rules,
    )


def _client_auth(listener: str, text: str) -> ClientAuth:
    try:
        return ClientAuth(text.lower())
    except ValueError:
        known = ", ".join(each.value for each in ClientAuth)
        raise Invalid(f"listener {listener}: ssl_client_auth must be one of {known}: {text!r}") from None


def _versions(listener: str, text: str) -> tuple[str, ...]:
    given = list(_items(text, ","))
    for each in given:
        if each not in VERSIONS:
            known = " and ".join(VERSIONS)
            raise Invalid(f"listener {listener}: ssl_enabled_protocols may have {known}: {each!r}")
    if not given:
        raise Invalid(f"listener {listener}: ssl_enabled_protocols must name a version of TLS")
    return tuple(each for each in VERSIONS if each in given)


def _items(text: str, separator: str) -> Iterable[str]:
    return (item.strip() for item in text.split(separator) if item.strip())
