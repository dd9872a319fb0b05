"""Files that only their owner reads, each written in one durable step."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

FILE_MODE = 0o400


def read(path: Path) -> str:
    """The text of the file, "" if there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def is_so(path: Path, text: str, owner: int | None) -> bool:
    """Whether the file has this text, is private, and has this owner."""
    if read(path) != text:
        return False
    status = path.stat()
    return status.st_mode & 0o777 == FILE_MODE and owner in (None, status.st_uid)


def write(path: Path, text: str, owner: int | None) -> None:
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
def alone(folder: Path) -> Iterator[None]:
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
