"""`penstock credentials`: creates a NATS user and a key to the S3 store for each service, once, and then keeps them.

The files of the nats-server and of the S3 server are the source. The files of the services are copies of parts of
them. Each file is written completely under another name, synced and renamed, the source first. So the next run
completes an interrupted one, and replaces no secret that may already be in use.
"""

import argparse
import contextlib
import fcntl
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.contracts.errors import Invalid, PenstockError
from penstock.runtime.clock import Entropy, SystemEntropy
from penstock.runtime.process.env_file import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, parse_env

# The actions of each service in the bucket, with SeaweedFS' names. A new service needs one line here, and a user in
# deploy/nats/accounts.conf.
READS = ("Read", "List")
WRITES = (*READS, "Write")
ROLES = {
    "gateway": READS,
    "flusher": WRITES,
    "sequencer": WRITES,
    "cacher": READS,
    "compactor": WRITES,
    "janitor": WRITES,
}
BUCKET_MAKER = "bucket"  # has a key, but no NATS user
BUCKET_MAKER_ACTIONS = ("Admin",)
KEYS = ROLES | {BUCKET_MAKER: BUCKET_MAKER_ACTIONS}
SYSTEM_USER = "system"
USERS = (*ROLES, SYSTEM_USER)
ROUTE = "route"  # the user with which the nats-servers of a cluster connect to each other
ROUTE_PORT = 6222

FILE = "credentials.env"
USERS_FILE = f"nats/{FILE}"
ROUTE_FILE = "nats/route.env"  # a separate file, because a nats-server rejects a password that it does not use
KEYS_FILE = "s3/s3.json"
FILE_MODE = 0o400
SECRET_BYTES = 32
_PASSWORD = "_PASSWORD"  # noqa: S105  the end of the variables of all users
_SECRET = re.compile(rf"k[0-9a-f]{{{2 * SECRET_BYTES}}}")  # begins with a letter, so that nats reads it as a string
_NODE = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_HEAD = "# Made by `penstock credentials`, which adds missing values and keeps existing ones.\n"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a set of credentials; owners are user ids, and None is the user that runs the command."""

    roles: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: ROLES)  # actions of each service
    bucket: str = "penstock"
    nats_nodes: tuple[str, ...] = ("nats", "nats-2", "nats-3")
    owner: int | None = None
    s3_owner: int | None = None

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise Invalid(f"a bucket name is 3 to 63 lower-case letters, digits, '.' or '-': {self.bucket!r}")
        for node in self.nats_nodes:
            if not _NODE.fullmatch(node):
                raise Invalid(f"a nats node is HOST or HOST:PORT, with commas between several nodes: {node!r}")


class _Key(msgspec.Struct, rename="camel"):
    """A key in SeaweedFS' format."""

    access_key: str
    secret_key: str


class _Identity(msgspec.Struct):
    """The owner of a key, and the actions that it allows."""

    name: str
    credentials: list[_Key]
    actions: list[str]


class _Identities(msgspec.Struct):
    """The whole file that SeaweedFS reads."""

    identities: list[_Identity]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `penstock credentials` with the command line."""
    parser = commands.add_parser(
        "credentials",
        help="create users and passwords for the services",
        description="Create a NATS user and an S3 key for each service. Existing ones are kept.",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        help="folder for the results: one folder for each service, for nats and for s3",
    )
    parser.add_argument(
        "--owner", metavar="UID", type=int, help="owner of the services' files (the caller; another owner needs root)"
    )
    parser.add_argument(
        "--s3-owner",
        metavar="UID",
        type=int,
        help="owner of the file of the S3 server (the caller; another owner needs root)",
    )
    parser.add_argument(
        "--bucket", metavar="NAME", default=Wanted().bucket, help="bucket that the keys give access to (%(default)s)"
    )
    parser.add_argument(
        "--nats-nodes",
        metavar="HOST[:PORT],...",
        default=",".join(Wanted().nats_nodes),
        help="servers of the NATS cluster, if there is one (%(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Create missing credentials; 0 if the set is complete now, 1 with one sentence if that is not possible."""
    folder = arguments.folder
    try:
        wanted = Wanted(
            bucket=arguments.bucket,
            nats_nodes=tuple(arguments.nats_nodes.split(",")),
            owner=arguments.owner,
            s3_owner=arguments.s3_owner,
        )
        written = make_credentials(folder, wanted, SystemEntropy())
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    print(f"credentials in {folder}: {'wrote ' + ', '.join(written) if written else 'complete'}")
    return 0


def make_credentials(folder: Path, wanted: Wanted, entropy: Entropy) -> list[str]:
    """Complete the set in `folder` and return the names of the written files; `Invalid` if that is not possible."""
    try:
        with _alone(folder / "nats"):
            return list(_complete(folder, wanted, entropy))
    except OSError as error:
        raise Invalid(f"cannot store credentials in {error.filename or folder}: {error.strerror}") from error


def _complete(folder: Path, wanted: Wanted, entropy: Entropy) -> Iterator[str]:
    actions = {**wanted.roles, BUCKET_MAKER: BUCKET_MAKER_ACTIONS}
    passwords = _with_new(_read_passwords(folder / USERS_FILE), [*wanted.roles, SYSTEM_USER], entropy)
    route = _with_new(_read_passwords(folder / ROUTE_FILE), [ROUTE], entropy)[ROUTE]
    keys = _with_new(_read_keys(folder / KEYS_FILE), actions, entropy)
    files: dict[str, tuple[str, int | None]] = {
        USERS_FILE: (_env({_variable(user): password for user, password in passwords.items()}), None),
        ROUTE_FILE: (_env({_variable(ROUTE): route, "ROUTES": _routes(wanted.nats_nodes, route)}), None),
        KEYS_FILE: (_identities(keys, actions, wanted.bucket), wanted.s3_owner),
    }
    for role in wanted.roles:
        user = {"PENSTOCK_NATS_USER": role, "PENSTOCK_NATS_PASSWORD": passwords[role]}
        files[f"{role}/{FILE}"] = (_env(user | _store_keys(role, keys)), wanted.owner)
    files[f"{BUCKET_MAKER}/{FILE}"] = (_env(_store_keys(BUCKET_MAKER, keys)), wanted.owner)
    for name, (text, owner) in files.items():
        if not _is_so(folder / name, text, owner):
            _write(folder / name, text, owner)
            yield name


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


def _identities(keys: Mapping[str, str], actions: Mapping[str, Iterable[str]], bucket: str) -> str:
    found = [
        _Identity(name, [_Key(_access_key(name), keys[name])], [f"{action}:{bucket}" for action in allowed])
        for name, allowed in actions.items()
    ]
    return msgspec.json.format(msgspec.json.encode(_Identities(found)), indent=2).decode() + "\n"


def _read_passwords(path: Path) -> dict[str, str]:
    values = parse_env(_read(path), str(path))
    named = {name: value for name, value in values.items() if name.endswith(_PASSWORD)}
    return _checked({name.removesuffix(_PASSWORD).lower(): value for name, value in named.items()}, path)


def _read_keys(path: Path) -> dict[str, str]:
    text = _read(path)
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


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _is_so(path: Path, text: str, owner: int | None) -> bool:
    """Whether the file has this text, is private, and has this owner."""
    if _read(path) != text:
        return False
    status = path.stat()
    return status.st_mode & 0o777 == FILE_MODE and owner in (None, status.st_uid)


def _write(path: Path, text: str, owner: int | None) -> None:
    """Write the file in one durable step; it is private from its creation on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # left by an interrupted run
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with open(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fchmod(descriptor, FILE_MODE)  # independent of the umask
        if owner is not None:
            os.fchown(descriptor, owner, -1)
        os.fsync(descriptor)
    os.replace(temporary, path)
    with _open_folder(path.parent) as parent:
        os.fsync(parent)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other run is active; two runs at once would write different passwords for servers and services."""
    folder.mkdir(parents=True, exist_ok=True)
    with _open_folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
