"""Walks a folder of objects in the order of their keys, without looking into folders that a listing does not need."""

import os
from collections.abc import Iterator
from pathlib import Path


def keys_in_order(root: Path, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Keys that begin with `prefix` and are above `after`, sorted, each with its file's status; lazily.

    A file that is deleted while the walk is on may be missing or not; hidden names are not objects.
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
    """The names in a folder in key order: a folder's own name counts with the slash that follows it in keys."""
    try:
        with os.scandir(folder) as entries:
            shown = (entry for entry in entries if not entry.name.startswith("."))
            return sorted(entry.name + "/" if entry.is_dir() else entry.name for entry in shown)
    except FileNotFoundError:
        return []
