"""Captures what a large state is at this moment as bytes, without keeping the event loop for as long as that takes.

`capture_forked` forks: the child has the state as it was in that moment, writes it into memory that both share, and
ends; meanwhile the parent goes on. `capture_inline` simply does it, for tests, simulations and other systems.
"""

import asyncio
import contextlib
import ctypes
import errno
import gc
import io
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import IO, NoReturn

import structlog

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable

Write = Callable[[IO[bytes]], None]
Capture = Callable[[Write], Awaitable[Buffer]]

ERROR_BYTES_MAX = 32 * 1024  # what the child says of its failure; half of what fits into a pipe that nobody reads yet
CHILD_TIMEOUT_S = 120.0  # the largest state takes a part of that; longer, and the child hangs
NICENESS = 5  # of the child: what the parent does in the meantime is awaited by somebody
_FIRST_FREE_FD = 3  # after stdin, stdout, stderr
_PR_SET_PDEATHSIG = 1
_OOM_SCORE_MAX = "1000"
_FORBIDDEN_ERRORS = (errno.ENOSYS, errno.EPERM)  # an old kernel, or a sandbox; trying again changes nothing
# Looked up beforehand: what a fork of one thread of several may do is to go on with what is there.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

log = structlog.get_logger()


class _Forbidden(Unavailable):
    """Not here, neither now nor later."""


async def capture_inline(write: Write) -> Buffer:
    """What `write` makes of an empty file, here and now; nobody else has a turn."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


async def capture_forked(write: Write) -> Buffer:
    """The same by a child: the event loop stands still for the fork alone. `write` must neither wait nor log.

    The bytes are memory that the child has left, freed with the last reference. `Unavailable` if there was no child or
    it failed; where no child may ever be made, it is done inline.
    """
    try:
        return await _capture_by_child(write)
    except _Forbidden as error:
        log.warning("capture_is_inline", error=str(error))
        return await capture_inline(write)


async def _capture_by_child(write: Write) -> Buffer:
    with _asking("make memory"):
        memory = os.memfd_create("snapshot")
    try:
        await _write_in_child(write, memory)
        with _asking("map memory"):
            return memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ))
    finally:
        os.close(memory)


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """What the kernel refuses is `Unavailable`; the process has more to do than this."""
    try:
        yield
    except OSError as error:
        kind = _Forbidden if error.errno in _FORBIDDEN_ERRORS else Unavailable
        raise kind(f"cannot {what}: {error.strerror or error}") from error


async def _write_in_child(write: Write, memory: int) -> None:
    with _asking("make a pipe"):
        said, says = os.pipe()
    try:
        try:
            with _asking("fork"):
                pid = os.fork()
            if pid == 0:
                _live_as_child(write, memory, says)
        finally:
            os.close(says)
        try:
            await _until_ended(pid)
        finally:
            code = _reaped(pid)
        if code:
            said_text = os.read(said, ERROR_BYTES_MAX).decode(errors="replace")
            raise Unavailable(f"the child that captured the state ended with {code}: {said_text}")
    finally:
        os.close(said)


def _reaped(pid: int) -> int:
    """The exit code of a child that has ended, or does now."""
    os.kill(pid, signal.SIGKILL)  # one that has ended does not notice
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _until_ended(pid: int) -> None:
    with _asking("watch a child"):
        ended = os.pidfd_open(pid)
    try:
        async with asyncio.timeout(CHILD_TIMEOUT_S):
            await _until_readable(ended)
    except TimeoutError as error:
        raise Unavailable(f"the child that captures the state was not done after {CHILD_TIMEOUT_S:g} s") from error
    finally:
        os.close(ended)


async def _until_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    with _asking("watch a child"):
        loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)


def _live_as_child(write: Write, memory: int, says: int) -> NoReturn:
    """A copy of the process with this thread alone, which must leave everything that it shares as it is."""
    code = 1
    try:
        gc.disable()
        os.nice(NICENESS)
        _die_first()
        _obey_the_kernel()
        _let_go_of_all_but(memory, says)
        with os.fdopen(memory, "w+b", closefd=False) as out:
            write(out)
        code = 0
    except BaseException:  # noqa: BLE001  there is nobody above; the parent hears of it
        os.write(says, traceback.format_exc().encode()[-ERROR_BYTES_MAX:])
    finally:
        os._exit(code)


def _die_first() -> None:
    """Where memory runs out, a snapshot is what can be done without, and the parent is not."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(_OOM_SCORE_MAX)


def _obey_the_kernel() -> None:
    """Signals end the child, and so does its parent's death."""
    signal.set_wakeup_fd(-1)  # else the parent's event loop would hear of signals to the child
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _let_go_of_all_but(*kept: int) -> None:
    """Close the parent's connections, which must not outlive it."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd >= _FIRST_FREE_FD and fd not in kept:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(fd)
