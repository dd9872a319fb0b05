"""The names of files below a store's folder: listings of keys in order, and names of staged files.

A staged file is not an object yet; its name contains the key of its object.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.contracts.errors import Invalid
from penstock.objectstore.store import UNFINISHED_KEY_BYTES_MAX, Unfinished

STAGING = ".staging"
LOCK = "lock"
SLASH = ","  # replaces the slashes of keys, which have no commas
_NAME = re.compile(r"[0-9a-f]{32}(?:\.linked|\.for\.[A-Za-z0-9._=+@,-]*)?")  # names of probes have no key


def staged_name(key: str, entropy: bytes) -> str:
    """A unique name for the staged file of an object."""
    return f"{entropy.hex()}.for.{key[:UNFINISHED_KEY_BYTES_MAX].replace('/', SLASH)}"


def check_staged_name(name: str) -> str:
    """`name` if it is valid for a staged file, else `Invalid`."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"not the name of a staged file: {name!r}")
    return name


def unfinished_in(staging: Path, prefix: str) -> list[Unfinished]:
    """All staged files for keys with this prefix, sorted by key and name; blocks."""
    found = []
    with os.scandir(staging) as entries:
        for entry in entries:
            key = entry.name.partition(".for.")[2].replace(SLASH, "/")
            if _NAME.fullmatch(entry.name) and key.startswith(prefix[:UNFINISHED_KEY_BYTES_MAX]):
                with contextlib.suppress(FileNotFoundError):
                    found.append(Unfinished(key, entry.name, entry.stat().st_mtime_ns // 1_000_000))
    return sorted(found, key=lambda unfinished: (unfinished.key, unfinished.name))


def keys_in_order(root: Path, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """A lazy, sorted listing of the keys that have this prefix and are above `after`, each with its file's status.

    Folders that the listing does not need are not opened. A file that is deleted during the listing may be in it or
    not. Hidden names are not objects.
    """
    return _walk(root, "", prefix, after)


def _walk(root: Path, base: str, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """The keys below the folder `base`, which is empty or ends in a slash."""
    for name in _names(root / base):
        path = base + name
        if name.endswith("/"):
            if _may_hold(path, prefix, after):
                yield from _walk(root, path, prefix, after)
        elif path.startswith(prefix) and path > after:
            try:
                yield path, (root / path).stat()
            except FileNotFoundError:
                continue


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Whether a key below `folder` can begin with `prefix` and be above `after`."""
    is_on_the_way = folder.startswith(prefix) or prefix.startswith(folder)
    return is_on_the_way and (folder > after or after.startswith(folder))


def _names(folder: Path) -> list[str]:
    """The names in a folder in key order; the name of a subfolder ends with a slash, as in keys."""
    try:
        with os.scandir(folder) as entries:
            shown = (entry for entry in entries if not entry.name.startswith("."))
            return sorted(entry.name + "/" if entry.is_dir() else entry.name for entry in shown)
    except FileNotFoundError:
        return []
