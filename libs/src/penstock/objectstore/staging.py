"""The names of files on their way into a folder of objects: each tells the key that it is for."""

import contextlib
import os
import re
from pathlib import Path

from penstock.contracts.errors import Invalid
from penstock.objectstore.store import UNFINISHED_KEY_BYTES_MAX, Unfinished

STAGING = ".staging"
LOCK = "lock"
SLASH = ","  # stands for the slashes of keys, which have no commas
_NAME = re.compile(r"[0-9a-f]{32}(?:\.linked|\.for\.[A-Za-z0-9._=+@,-]*)?")  # a probe's have no key


def staged_name(key: str, entropy: bytes) -> str:
    """A name that nobody else has, for a file that is to become the object."""
    return f"{entropy.hex()}.for.{key[:UNFINISHED_KEY_BYTES_MAX].replace('/', SLASH)}"


def check_staged_name(name: str) -> str:
    """`name` if a staged file can have it, else `Invalid`."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"not the name of a staged file: {name!r}")
    return name


def unfinished_in(staging: Path, prefix: str) -> list[Unfinished]:
    """All files on their way to keys that begin with `prefix`, sorted by key and name; blocks."""
    found = []
    with os.scandir(staging) as entries:
        for entry in entries:
            key = entry.name.partition(".for.")[2].replace(SLASH, "/")
            if _NAME.fullmatch(entry.name) and key.startswith(prefix[:UNFINISHED_KEY_BYTES_MAX]):
                with contextlib.suppress(FileNotFoundError):
                    found.append(Unfinished(key, entry.name, entry.stat().st_mtime_ns // 1_000_000))
    return sorted(found, key=lambda unfinished: (unfinished.key, unfinished.name))
