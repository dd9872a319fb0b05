"""Blocking work on files in threads, which always runs to its end, with errors translated into our own."""

import asyncio
import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, PenstockError, Unavailable

IOVECS_MAX = 1024  # the buffers per system call (IOV_MAX)

_FINAL = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})

Result = TypeVar("Result")


async def run_in(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    """Do blocking work in a thread; errors of the operating system become our own."""
    return await asyncio.wrap_future(submit(pool, work))


def submit(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Future[Result]:
    """Start blocking work in a thread, which runs to its end even if no task waits for it any more."""

    def contained() -> Result:
        try:
            return work()
        except PenstockError:
            raise
        except OSError as error:
            raise _translated(error) from error

    return pool.submit(contained)


def _translated(error: OSError) -> PenstockError:
    text = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    if is_final(error):
        return Invalid(f"file store rejected: {text}")
    return Unavailable(f"file store failed: {text}")


def is_final(error: OSError) -> bool:
    """Whether a retry would get the same error."""
    return error.errno in _FINAL


def etag_of(status: os.stat_result) -> str:
    """The name of this version of a file."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def write_all(descriptor: int, body: Sequence[Buffer]) -> None:
    """Write the buffers in order at the descriptor's position; one system call may write only some of them."""
    views = [memoryview(buffer).cast("B") for buffer in body if len(buffer)]
    first = 0
    while first < len(views):
        written = os.writev(descriptor, views[first : first + IOVECS_MAX])
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if written:
            views[first] = views[first][written:]


def read_all(descriptor: int, position: int, length: int) -> bytes:
    """Exactly `length` bytes; one system call may return fewer."""
    data = os.pread(descriptor, length, position)
    if len(data) == length:
        return data
    parts = [data]
    while data and (missing := length - sum(map(len, parts))):
        data = os.pread(descriptor, missing, position + length - missing)
        parts.append(data)
    if sum(map(len, parts)) != length:
        raise Unavailable(f"object shrank while {length} bytes at {position} were read")
    return b"".join(parts)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(descriptor: int, platform: str = sys.platform) -> None:
    """Make the bytes and the times of a file durable."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if platform == "darwin" and full_sync is not None:  # there fsync leaves the bytes in the cache of the drive
        fcntl.fcntl(descriptor, full_sync)
    else:
        os.fsync(descriptor)


def sync_data(descriptor: int, platform: str = sys.platform) -> None:
    """Make the bytes of a file durable; its times may follow later."""
    if platform == "linux":
        os.fdatasync(descriptor)
    else:
        sync_file(descriptor, platform)


def uncache(descriptor: int, position: int, size: int, platform: str = sys.platform) -> None:
    """Remove a range of a file from the page cache, if the kernel can do that. Size 0 means to its end."""
    if platform == "linux":
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)


def discard(path: Path) -> None:
    """Delete a file that is not needed, if that is possible."""
    with contextlib.suppress(OSError):
        path.unlink()
