"""Reads of bytes in the page cache without a thread, because they never wait for the disk."""

import contextlib
import os
from collections import OrderedDict
from pathlib import Path

from penstock.contracts.codec import Buffer


class CachedReads:
    """Reads files that were opened lately: the kernel most likely has their names in memory."""

    def __init__(self, root: Path, opened_max: int) -> None:
        self._root = root
        self._opened_max = opened_max
        self._opened: OrderedDict[str, None] = OrderedDict()  # the keys of these files

    def read(self, key: str, position: int, buffer: Buffer) -> int:
        """Read from `position` into a writable buffer, as far as that takes no wait; return how many bytes."""
        return read_cached(self._root / key, position, buffer) if key in self._opened else 0

    def record_opened(self, key: str) -> None:
        """Record that the file of a key was opened now."""
        self._opened[key] = None
        self._opened.move_to_end(key)
        if len(self._opened) > self._opened_max:
            self._opened.popitem(last=False)


def read_cached(path: Path, position: int, buffer: Buffer) -> int:
    """Read from `position` into a writable buffer, as far as the page cache has the bytes; return how many.

    It never waits for the disk to read them. It reads nothing where the kernel or the file system cannot do that, and
    where it fails: a read that may wait then gets the error.
    """
    no_wait: int = getattr(os, "RWF_NOWAIT", 0)
    if not no_wait:
        return 0
    view = memoryview(buffer)
    done = 0
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while done < len(view) and (count := os.preadv(descriptor, [view[done:]], position + done, no_wait)):
                done += count
        finally:
            os.close(descriptor)
    return done
