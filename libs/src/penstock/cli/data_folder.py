"""The data folder of `penstock up`, with a lock: one process at a time uses it."""

import fcntl
from pathlib import Path
from typing import IO

from penstock.contracts.errors import Invalid

LOCK_NAME = "lock"  # held by the `penstock up` or `rebuild` that uses the folder


def take_folder(data: Path) -> IO[str]:
    """Create the data folder and lock it until the returned file is closed; `Invalid` if that is not possible."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        for name in ("logs", "nats"):
            (data / name).mkdir(exist_ok=True)
        lock = (data / LOCK_NAME).open("a+")
    except OSError as error:
        raise Invalid(f"cannot write to the data folder {data}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise Invalid(f"another penstock is running on the data folder {data}") from error
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
