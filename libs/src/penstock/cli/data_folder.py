"""The data folder of `penstock up`: its lock, which one process at a time has, and the address of its store."""

import fcntl
from pathlib import Path
from typing import IO
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from penstock.contracts.errors import Invalid
from penstock.objectstore import folder_address

LOCK_NAME = "lock"  # held by the `penstock up` or `rebuild` that uses the folder
CLIENT_NAME = "client.env"  # in the folder `nats`
STORE_NAME = "store"  # the address of a store that is not in the folder
_SECRET_OPTIONS = ("access_key", "secret_key", "account_key")


def take_folder(data: Path) -> IO[str]:
    """Create the data folder and lock it until the returned file is closed; `Invalid` if that is not possible."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("logs", "nats"):
            (data / name).mkdir(mode=0o700, exist_ok=True)
        lock = (data / LOCK_NAME).open("a+")
    except OSError as error:
        reason = "it is no folder" if isinstance(error, FileExistsError) else error.strerror
        raise Invalid(f"cannot write to the data folder {data}: {reason}; choose another one with --data") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise Invalid(
            f"another penstock is running on the data folder {data}; stop it, or choose another folder with --data"
        ) from error
    return lock


def is_taken(data: Path) -> bool:
    """Whether a process uses the folder now."""
    try:
        with (data / LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_client_file(nats: Path, url: str, user: str, password: str) -> None:
    """Write the address and the login of the folder's nats-server, for clients that name it in PENSTOCK_ENV_FILE.

    `Invalid` if that is not possible.
    """
    path = nats / CLIENT_NAME
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(
            f"PENSTOCK_NATS_URL={url}\nPENSTOCK_NATS_USER={user}\nPENSTOCK_NATS_PASSWORD={password}\n", encoding="utf-8"
        )
    except OSError as error:
        raise Invalid(f"cannot write the login of the nats-server to {path}: {error.strerror}") from error


def client_file(data: Path) -> Path:
    """The file with the address and the login of the folder's nats-server, as the last start wrote it."""
    return data / "nats" / CLIENT_NAME


def own_store(data: Path) -> str:
    """The address of the store inside the folder."""
    return folder_address(data / "objects")


def recorded_store(data: Path) -> str:
    """The address of the store that the last `penstock up` of the folder used, without keys to it."""
    try:
        return (data / STORE_NAME).read_text(encoding="utf-8").strip() or own_store(data)
    except OSError:
        return own_store(data)


def record_store(data: Path, url: str) -> None:
    """Record the address without its keys, for commands that name only the folder, and for the next start."""
    if url == own_store(data):  # not recorded, so that the whole folder may be moved
        (data / STORE_NAME).unlink(missing_ok=True)
        return
    parts = urlsplit(url)
    options = [option for option in parse_qsl(parts.query) if option[0] not in _SECRET_OPTIONS]
    (data / STORE_NAME).write_text(urlunsplit(parts._replace(query=urlencode(options))) + "\n", encoding="utf-8")
