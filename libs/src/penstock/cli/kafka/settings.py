"""The flags with which a command finds a Kafka listener, and the settings of flags, environment and profile."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.cli.kafka.profiles import (
    MECHANISMS,
    OAUTHBEARER,
    PROTOCOLS,
    KafkaSettings,
    named_profile,
    profiles_file,
    read_profiles,
)
from penstock.cli.kafka.properties import read_properties, read_text
from penstock.contracts.errors import Invalid

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
PROFILE_VARIABLE = "PENSTOCK_PROFILE"
CONFIG_VARIABLE = "PENSTOCK_COMMAND_CONFIG"
PASSWORD_VARIABLE = "PENSTOCK_PASSWORD"  # noqa: S105  the name of a variable
REGISTRY_VARIABLE = "PENSTOCK_SCHEMA_REGISTRY"
TIMEOUT_S = 10.0
PORT_MAX = 65_535


def add_kafka_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select a cluster."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT,...",
        default="",
        help=f"the Kafka listener ({BOOTSTRAP_DEFAULT}) [{BOOTSTRAP_VARIABLE}]",
    )
    group.add_argument(
        "--profile", metavar="NAME", default="", help=f"profile with address and login [{PROFILE_VARIABLE}]"
    )
    group.add_argument(
        "--command-config",
        metavar="FILE",
        default="",
        help=f"client settings, as for Kafka's tools or librdkafka [{CONFIG_VARIABLE}]",
    )
    group.add_argument(
        "--timeout", metavar="S", type=positive_seconds, default=TIMEOUT_S, help="wait for each answer (%(default)g)"
    )


def add_login_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a login, which a profile keeps."""
    group = parser.add_argument_group("login")
    group.add_argument("--security-protocol", choices=PROTOCOLS, default="", help="the protocol of the listener")
    group.add_argument("--sasl-mechanism", choices=MECHANISMS, default="", help="the mechanism of the login")
    group.add_argument("--username", metavar="NAME", default="", help="the user")
    group.add_argument("--password-file", metavar="FILE", default="", help="a file whose first line is the password")
    group.add_argument("--ca-file", metavar="FILE", default="", help="certificate of the authority, PEM")
    group.add_argument("--certificate-file", metavar="FILE", default="", help="certificate of the client, PEM")
    group.add_argument("--key-file", metavar="FILE", default="", help="key of the client's certificate, PEM")


def add_registry_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select a schema registry, which a profile also keeps."""
    group = parser.add_argument_group("schema registry")
    group.add_argument(
        "--schema-registry",
        metavar="URL",
        default="",
        help=f"decode keys and values by its schemas: https://USER@HOST:PORT [{REGISTRY_VARIABLE}]",
    )
    group.add_argument(
        "--schema-registry-password-file",
        metavar="FILE",
        default="",
        help="a file whose first line is the password there",
    )
    group.add_argument(
        "--schema-registry-ca-file", metavar="FILE", default="", help="certificate of its authority, PEM"
    )


def read_settings(
    arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ, path: Path | None = None
) -> KafkaSettings:
    """The settings of flags, `--command-config`, environment and profile, in this order.

    `Invalid` if they contradict each other.
    """
    profiles = read_profiles(path or profiles_file(environ))
    name = arguments.profile or environ.get(PROFILE_VARIABLE, "")
    config = arguments.command_config or ("" if name else environ.get(CONFIG_VARIABLE, ""))
    found = KafkaSettings(bootstrap=environ.get(BOOTSTRAP_VARIABLE, ""), password=environ.get(PASSWORD_VARIABLE, ""))
    # A named profile is meant as it is. The current one gives way to an address that is named otherwise.
    if name:
        found = named_profile(profiles, name).over(found)
    elif profiles.current and not (arguments.bootstrap or config or found.bootstrap):
        found = named_profile(profiles, profiles.current).over(found)
    if config:
        found = read_properties(Path(config).expanduser()).over(found)
    flags = {name: value for name in KafkaSettings.__struct_fields__ if (value := getattr(arguments, name, ""))}
    defaults = KafkaSettings(bootstrap=BOOTSTRAP_DEFAULT, schema_registry=environ.get(REGISTRY_VARIABLE, ""))
    return checked(KafkaSettings(**flags).over(found).over(defaults))


def checked(settings: KafkaSettings) -> KafkaSettings:
    """The settings with a security protocol; `Invalid` if they contradict each other."""
    for address in settings.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not (port.isascii() and port.isdecimal() and 1 <= int(port) <= PORT_MAX):
            raise Invalid(f"an address is HOST:PORT with a port from 1 to {PORT_MAX}: {address!r}")
    protocol = settings.security_protocol or _implied_protocol(settings)
    if protocol not in PROTOCOLS:
        raise Invalid(f"the security protocol is one of {', '.join(PROTOCOLS)}: {protocol!r}")
    if protocol.startswith("SASL") and not settings.username:
        raise Invalid(f"{protocol} needs a user and a password: give them by --profile or --command-config")
    if settings.schema_registry:
        from penstock.schemas.registry import parse_address

        parse_address(settings.schema_registry)
    return KafkaSettings(security_protocol=protocol).over(settings)


def _implied_protocol(settings: KafkaSettings) -> str:
    has_tls = bool(settings.ca_file or settings.certificate_file)
    if settings.username:
        return "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
    return "SSL" if has_tls else "PLAINTEXT"


def client_configs(settings: KafkaSettings, token: str = "") -> dict[str, Any]:
    """The settings as kafka-python names them, with a token in place of a password if it is given.

    `Invalid` if the password file cannot be read.
    """
    configs: dict[str, Any] = {
        "bootstrap_servers": [address.strip() for address in settings.bootstrap.split(",")],
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.startswith("SASL"):
        configs |= _token_login(token) if token else _password_login(settings)
    files = {
        "ssl_cafile": settings.ca_file,
        "ssl_certfile": settings.certificate_file,
        "ssl_keyfile": settings.key_file,
    }
    for file in files.values():
        if file and not Path(file).is_file():
            raise Invalid(f"there is no file {file}")
    return configs | {name: file for name, file in files.items() if file}


def _password_login(settings: KafkaSettings) -> dict[str, Any]:
    return {
        "sasl_mechanism": settings.sasl_mechanism or MECHANISMS[0],
        "sasl_plain_username": settings.username,
        "sasl_plain_password": _password_of(settings),
    }


def _token_login(token: str) -> dict[str, Any]:
    from penstock.cli.kafka.bearer import OneToken

    return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": OneToken(token)}


def _password_of(settings: KafkaSettings) -> str:
    if settings.password or not settings.password_file:
        return settings.password
    return read_text(Path(settings.password_file), "the password").partition("\n")[0].rstrip("\r")


def positive_seconds(text: str) -> float:
    """A time-out in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3_600:
        raise argparse.ArgumentTypeError(f"a time-out is more than 0 and at most 3600 seconds: {text}")
    return seconds
