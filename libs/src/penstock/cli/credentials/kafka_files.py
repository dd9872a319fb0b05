"""The files for the clients of a secured cluster: a certificate for gateways, an administrator, the token of metrics.

Those that are good stay, the others are made again. The folder `client` is for operators: the certificate of the
authority, the administrator's password, and settings of clients, which name the certificate relative to the folder.
"""

import datetime
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.credentials.private_files import read
from penstock.cli.credentials.wanted import (
    AGENT,
    CLIENT,
    CONSOLE,
    HTTP_TOKEN,
    KAFKA,
    KAFKA_AUTHORITY,
    TOKEN_KEY,
    Wanted,
)
from penstock.cli.identities.certificates import Identity, is_good, new_authority, new_certificate
from penstock.cli.identities.client_files import (
    LIBRDKAFKA_FILE,
    PASSWORD_FILE,
    PROPERTIES_FILE,
    SECRET_BYTES,
    java_properties,
    librdkafka_settings,
    listener_properties,
    login_secret,
)
from penstock.runtime.clock import Entropy

CA, CERTIFICATE, KEY = "ca.pem", "kafka.pem", "kafka-key.pem"
CONSOLE_CA = "kafka-ca.pem"  # beside the authority of NATS
GATEWAYS = ("gateway", AGENT)  # the users that serve clients
TOKEN_FILE = "http-token"  # noqa: S105  the name of a file
LOGIN_SECRET_VARIABLE = "PENSTOCK_SASL_LOGIN_SECRET"  # noqa: S105  the name of a variable
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1")

Files = Iterator[tuple[str, str, int | None]]  # the name, the text and the owner of each


def password_of(folder: Path, wanted: Wanted, entropy: Entropy) -> str:
    """The administrator's password, a new one if there is none yet."""
    found = "" if CLIENT in wanted.rotate else read(folder / CLIENT / PASSWORD_FILE).strip()
    return found or entropy.take(SECRET_BYTES).hex()


def gateway_settings(password: str) -> dict[str, str]:
    """More settings in the env file of gateways."""
    return {LOGIN_SECRET_VARIABLE: login_secret(password)}


def kafka_files(folder: Path, wanted: Wanted, password: str, now: datetime.datetime) -> Files:
    """The certificates of the listeners, those of the authority first, and the files of the administrator."""
    authority = _found(folder, KAFKA_AUTHORITY)
    if KAFKA_AUTHORITY in wanted.rotate or not is_good(authority, authority, now):
        authority = new_authority(f"Penstock {wanted.cluster}", now)
    yield from _files(KAFKA_AUTHORITY, authority, None)
    hosts = list(dict.fromkeys((*wanted.kafka_hosts, *_OWN_HOSTS)))
    for role in filter(wanted.roles.__contains__, GATEWAYS):
        found = _found(folder, role)
        if KAFKA in wanted.rotate or not is_good(found, authority, now, hosts):
            found = new_certificate(authority, "Penstock gateway", now, hosts=hosts, is_client=False)
        yield from _files(role, found, wanted.owner)
    texts = {
        CA: authority.certificate,
        PASSWORD_FILE: password + "\n",
        PROPERTIES_FILE: java_properties(Path(CA), password),
        LIBRDKAFKA_FILE: librdkafka_settings("", Path(CA), password),
    }
    yield from ((f"{CLIENT}/{name}", text, wanted.owner) for name, text in texts.items())
    if CONSOLE in wanted.roles:
        yield f"{CONSOLE}/{CONSOLE_CA}", authority.certificate, wanted.owner
        yield f"{CONSOLE}/{PROPERTIES_FILE}", listener_properties(Path(CONSOLE_CA)), wanted.owner


def token_key_files(folder: Path, wanted: Wanted, entropy: Entropy) -> Files:
    """The secret keys of delegation tokens, a line each, for all gateways: the one in use, and the one before it."""
    roles = [role for role in GATEWAYS if role in wanted.roles]
    found = next(filter(None, (read(folder / role / TOKEN_KEY).split() for role in roles)), [])
    if TOKEN_KEY in wanted.rotate or not found:
        found = [entropy.take(SECRET_BYTES).hex(), *found[:1]]
    text = "".join(f"{key}\n" for key in found)
    yield from ((f"{role}/{TOKEN_KEY}", text, wanted.owner) for role in roles)


def http_token_files(folder: Path, wanted: Wanted, entropy: Entropy) -> Files:
    """The token, and a copy of it for each service."""
    found = "" if HTTP_TOKEN in wanted.rotate else read(folder / HTTP_TOKEN / TOKEN_FILE).strip()
    text = (found or entropy.take(SECRET_BYTES).hex()) + "\n"
    yield f"{HTTP_TOKEN}/{TOKEN_FILE}", text, wanted.owner
    yield from ((f"{role}/{TOKEN_FILE}", text, wanted.owner) for role in wanted.roles)


def _files(name: str, identity: Identity, owner: int | None) -> Files:
    yield f"{name}/{KEY}", identity.key, owner
    yield f"{name}/{CERTIFICATE}", identity.certificate, owner


def _found(folder: Path, name: str) -> Identity:
    return Identity(read(folder / name / CERTIFICATE), read(folder / name / KEY))
