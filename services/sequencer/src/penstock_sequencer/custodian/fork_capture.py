"""Captures a large state as bytes, as it is at this moment, without blocking the event loop.

`capture_forked` forks. The child has the state of that moment, writes it into shared memory, and ends. The parent
continues at once. `capture_inline` writes in this process, for tests, simulations and other systems.
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

ERROR_BYTES_MAX = 32 * 1024  # of the child's error text; half the size of a pipe
CHILD_TIMEOUT_S = 120.0  # the largest state takes only a part of that; a child that takes longer hangs
NICENESS = 5  # of the child: clients wait for the work of the parent
_FIRST_FREE_FD = 3  # after stdin, stdout, stderr
_PR_SET_PDEATHSIG = 1
_OOM_SCORE_MAX = "1000"
_FORBIDDEN_ERRORS = (errno.ENOSYS, errno.EPERM)  # an old kernel, or a sandbox; a retry does not help
# Looked up before the fork: after it, a process with several threads may only use what is loaded already.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

log = structlog.get_logger()


class _Forbidden(Unavailable):
    """This system never allows the call."""


async def capture_inline(write: Write) -> Buffer:
    """The bytes that `write` writes to an empty file, in this process; it blocks all other tasks."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


async def capture_forked(write: Write, *, timeout_s: float = CHILD_TIMEOUT_S) -> Buffer:
    """The same in a child process: only the fork blocks the event loop. `write` must neither wait nor log.

    The result is memory that the child has written; the last reference frees it. `Unavailable` if there was no child,
    it failed, or it was not done after `timeout_s`. If the system never allows a child, the capture is inline.
    """
    try:
        return await _capture_by_child(write, timeout_s)
    except _Forbidden as error:
        log.warning("capture_inline", error=str(error))
        return await capture_inline(write)


async def _capture_by_child(write: Write, timeout_s: float) -> Buffer:
    with _kernel_errors("make memory"):
        memory = os.memfd_create("snapshot")
    try:
        await _write_in_child(write, memory, timeout_s)
        with _kernel_errors("map memory"):
            return memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ))
    finally:
        os.close(memory)


@contextlib.contextmanager
def _kernel_errors(what: str) -> Iterator[None]:
    """Turn an error of the kernel into `Unavailable`, so that it does not end the process."""
    try:
        yield
    except OSError as error:
        kind = _Forbidden if error.errno in _FORBIDDEN_ERRORS else Unavailable
        raise kind(f"cannot {what}: {error.strerror or error}") from error


async def _write_in_child(write: Write, memory: int, timeout_s: float) -> None:
    with _kernel_errors("make a pipe"):
        reader, writer = os.pipe()
    try:
        try:
            with _kernel_errors("fork"):
                pid = os.fork()
            if pid == 0:
                _run_child(write, memory, writer)
        finally:
            os.close(writer)
        try:
            await _until_ended(pid, timeout_s)
        finally:
            code = _reaped(pid)
        if code:
            error = os.read(reader, ERROR_BYTES_MAX).decode(errors="replace")
            raise Unavailable(f"the child that captured the state ended with {code}: {error}")
    finally:
        os.close(reader)


def _reaped(pid: int) -> int:
    """Kill the child if it still runs, and return its exit code."""
    os.kill(pid, signal.SIGKILL)  # no effect on a child that has ended
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _until_ended(pid: int, timeout_s: float) -> None:
    with _kernel_errors("watch a child"):
        ended = os.pidfd_open(pid)
    try:
        async with asyncio.timeout(timeout_s):
            await _until_readable(ended)
    except TimeoutError as error:
        raise Unavailable(f"the child that captures the state was not done after {timeout_s:g} s") from error
    finally:
        os.close(ended)


async def _until_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    with _kernel_errors("watch a child"):
        loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)


def _run_child(write: Write, memory: int, writer: int) -> NoReturn:
    """Run in a copy of the process that has only this thread; it must not change anything that it shares."""
    code = 1
    try:
        gc.disable()
        os.nice(NICENESS)
        _prefer_as_oom_victim()
        _reset_signals()
        _close_all_but(memory, writer)
        with os.fdopen(memory, "w+b", closefd=False) as out:
            write(out)
        code = 0
    except BaseException:  # noqa: BLE001  there is no caller; the parent reads the error
        os.write(writer, traceback.format_exc().encode()[-ERROR_BYTES_MAX:])
    finally:
        os._exit(code)


def _prefer_as_oom_victim() -> None:
    """Make the kernel kill the child before its parent when memory runs out: a snapshot can be taken again."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(_OOM_SCORE_MAX)


def _reset_signals() -> None:
    """Let signals end the child, and also the death of its parent."""
    signal.set_wakeup_fd(-1)  # else signals to the child would reach the parent's event loop
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _close_all_but(*kept: int) -> None:
    """Close the parent's connections in the child; they must not stay open after the parent."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd >= _FIRST_FREE_FD and fd not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                os.close(fd)
