"""Passwords and keys: created once, then kept.

The files of the nats-server and of the S3 server are the source. The files of the services are copies of parts of
them. Each file is written completely under another name, synced and renamed, the source first. So the next run
completes an interrupted one, and replaces no secret that may already be in use.
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.cli.credentials.kafka_files import (
    GATEWAYS,
    gateway_settings,
    http_token_files,
    kafka_files,
    password_of,
    token_key_files,
)
from penstock.cli.credentials.nats_accounts import ANY, accounts
from penstock.cli.credentials.private_files import alone, is_so, read, write
from penstock.cli.credentials.store_rights import ALL_CLUSTERS, Place, seaweed_policy
from penstock.cli.credentials.tls_files import tls_files
from penstock.cli.credentials.wanted import BUCKET_MAKER, ROUTE, ROUTE_PORT, SYSTEM_USER, Wanted
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, Entropy, SystemClock
from penstock.runtime.process.env_file import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, parse_env

SYSTEM_CLOCK = SystemClock()
FILE = "credentials.env"
USERS_FILE = f"nats/{FILE}"
ROUTE_FILE = "nats/route.env"  # a separate file, because a nats-server rejects a password that it does not use
ACCOUNTS_FILE = "nats/accounts.conf"
KEYS_FILE = "s3/s3.json"
SECRET_BYTES = 32
_PASSWORD = "_PASSWORD"  # noqa: S105  the end of the variables of all users
_SECRET = re.compile(rf"k[0-9a-f]{{{2 * SECRET_BYTES}}}")  # begins with a letter, so that nats reads it as a string
_HEAD = "# Made by `penstock credentials`, which adds missing values and keeps existing ones.\n"


class _Key(msgspec.Struct, rename="camel"):
    """A key in SeaweedFS' format."""

    access_key: str
    secret_key: str


class _Identity(msgspec.Struct, rename="camel", omit_defaults=True):
    """The owner of a key: services have policies, and the maker of the bucket an action."""

    name: str
    credentials: list[_Key]
    actions: list[str] = []
    policy_names: list[str] = []


class _Policy(msgspec.Struct):
    """A policy document as one JSON text."""

    name: str
    content: str


class _Identities(msgspec.Struct):
    """The whole file that SeaweedFS reads."""

    identities: list[_Identity]
    policies: list[_Policy] = []


def make_credentials(folder: Path, wanted: Wanted, entropy: Entropy, clock: Clock = SYSTEM_CLOCK) -> list[str]:
    """Complete the set in `folder` and return the names of the written files; `Invalid` if that is not possible."""
    try:
        with alone(folder / "nats"):
            return list(_complete(folder, wanted, entropy, clock))
    except OSError as error:
        raise Invalid(f"cannot store credentials in {error.filename or folder}: {error.strerror}") from error


def _complete(folder: Path, wanted: Wanted, entropy: Entropy, clock: Clock) -> Iterator[str]:
    found = [
        {user: secret for user, secret in each.items() if user not in wanted.rotate}
        for each in (
            _read_passwords(folder / USERS_FILE),
            _read_passwords(folder / ROUTE_FILE),
            _read_keys(folder / KEYS_FILE),
        )
    ]
    passwords = _with_new(found[0], [*wanted.roles, SYSTEM_USER], entropy)
    route = _with_new(found[1], [ROUTE], entropy)[ROUTE]
    keys = _with_new(found[2], [*wanted.roles, BUCKET_MAKER], entropy)
    administrator = password_of(folder, wanted, entropy) if wanted.kafka_hosts else ""
    files = _files_of_options(folder, wanted, administrator, entropy, clock)
    files |= {
        USERS_FILE: (_env({_variable(user): password for user, password in passwords.items()}), None),
        ROUTE_FILE: (_env({_variable(ROUTE): route, "ROUTES": _routes(wanted.nats_nodes, route)}), None),
        ACCOUNTS_FILE: (
            accounts(
                ANY if wanted.hosts_clusters else wanted.cluster,
                wanted.roles,
                with_old_services=wanted.with_old_services,
            ),
            None,
        ),
        KEYS_FILE: (_identities(keys, wanted), wanted.s3_owner),
    }
    for role in wanted.roles:
        given = {"PENSTOCK_NATS_USER": role, "PENSTOCK_NATS_PASSWORD": passwords[role]} | _store_keys(role, keys)
        if role in GATEWAYS and administrator:
            given |= gateway_settings(administrator)
        files[f"{role}/{FILE}"] = (_env(given), wanted.owner)
    files[f"{BUCKET_MAKER}/{FILE}"] = (_env(_store_keys(BUCKET_MAKER, keys)), wanted.owner)
    for name, (text, owner) in files.items():
        if not is_so(folder / name, text, owner):
            write(folder / name, text, owner)
            yield name


def _files_of_options(
    folder: Path, wanted: Wanted, administrator: str, entropy: Entropy, clock: Clock
) -> dict[str, tuple[str, int | None]]:
    """The text and the owner of each file that a set need not have. They come first: env files have parts of them."""
    now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    found = [
        *(tls_files(folder, wanted, now) if wanted.with_tls else ()),
        *(kafka_files(folder, wanted, administrator, now) if administrator else ()),
        *(token_key_files(folder, wanted, entropy) if administrator else ()),
        *(http_token_files(folder, wanted, entropy) if wanted.with_http_token else ()),
    ]
    return {name: (text, owner) for name, text, owner in found}


def _with_new(found: Mapping[str, str], names: Iterable[str], entropy: Entropy) -> dict[str, str]:
    """A secret for each name: the existing one, else a new one. Secrets of other names are dropped."""
    return {name: found.get(name) or f"k{entropy.take(SECRET_BYTES).hex()}" for name in names}


def _variable(user: str) -> str:
    return f"{user.upper()}{_PASSWORD}"


def _routes(nodes: Iterable[str], password: str) -> str:
    """The addresses of all nodes with the password, as a list that is valid JSON and a valid nats-server setting."""
    hosts = [node if re.search(r":[0-9]+\Z", node) else f"{node}:{ROUTE_PORT}" for node in nodes]
    return msgspec.json.encode([f"nats://{ROUTE}:{password}@{host}" for host in hosts]).decode()


def _access_key(name: str) -> str:
    return f"penstock-{name}"


def _store_keys(name: str, keys: Mapping[str, str]) -> dict[str, str]:
    return {ACCESS_KEY_VARIABLE: _access_key(name), SECRET_KEY_VARIABLE: keys[name]}


def _env(values: Mapping[str, str]) -> str:
    return _HEAD + "".join(f"{name}={value}\n" for name, value in values.items())


def _identities(keys: Mapping[str, str], wanted: Wanted) -> str:
    place = Place(wanted.bucket, wanted.prefix, ALL_CLUSTERS if wanted.hosts_clusters else wanted.cluster)
    owned = {name: [_Key(_access_key(name), key)] for name, key in keys.items()}
    found = [_Identity(name, owned[name], policy_names=[name]) for name in wanted.roles]
    found.append(_Identity(BUCKET_MAKER, owned[BUCKET_MAKER], actions=[f"Admin:{wanted.bucket}"]))
    policies = [_Policy(name, msgspec.json.encode(seaweed_policy(name, place)).decode()) for name in wanted.roles]
    return msgspec.json.format(msgspec.json.encode(_Identities(found, policies)), indent=2).decode() + "\n"


def _read_passwords(path: Path) -> dict[str, str]:
    values = parse_env(read(path), str(path))
    named = {name: value for name, value in values.items() if name.endswith(_PASSWORD)}
    return _checked({name.removesuffix(_PASSWORD).lower(): value for name, value in named.items()}, path)


def _read_keys(path: Path) -> dict[str, str]:
    text = read(path)
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text, type=_Identities)
        return _checked({each.name: each.credentials[0].secret_key for each in found.identities}, path)
    except (msgspec.DecodeError, msgspec.ValidationError, IndexError) as error:
        raise _damaged(path) from error


def _checked(secrets: dict[str, str], path: Path) -> dict[str, str]:
    if not all(map(_SECRET.fullmatch, secrets.values())):
        raise _damaged(path)
    return secrets


def _damaged(path: Path) -> Invalid:
    return Invalid(f"{path} was changed or damaged: remove it; the next run creates new credentials for its users")
