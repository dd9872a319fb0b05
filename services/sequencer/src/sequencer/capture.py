"""Captures what a large state is at this moment as bytes, without keeping the event loop for as long as that takes.

`capture_forked` forks: the child has the state as it was in that moment, writes it into memory that both share, and
ends; meanwhile the parent goes on. `capture_inline` simply does it, for tests, simulations and other systems.
"""

import asyncio
import ctypes
import gc
import io
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import IO, NoReturn

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable

Write = Callable[[IO[bytes]], None]
Capture = Callable[[Write], Awaitable[Buffer]]

ERROR_BYTES_MAX = 32 * 1024  # what the child says of its failure; half of what fits into a pipe that nobody reads yet
NICENESS = 5  # of the child: what the parent does in the meantime is awaited by somebody
_FIRST_FREE_FD = 3  # after stdin, stdout, stderr
_FDS_MAX = 2**31 - 1
_PR_SET_PDEATHSIG = 1
# Looked up beforehand: what a fork of one thread of several may do is to go on with what is there.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


async def capture_inline(write: Write) -> Buffer:
    """What `write` makes of an empty file, here and now; nobody else has a turn."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


async def capture_forked(write: Write) -> Buffer:
    """The same by a child: the event loop stands still for the fork alone. `write` must neither wait nor log.

    The bytes are memory that the child has left, freed with the last reference. `Unavailable` if there was no child or
    it failed.
    """
    memory = os.memfd_create("snapshot")
    try:
        await _write_in_child(write, memory)
        return memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ))
    finally:
        os.close(memory)


async def _write_in_child(write: Write, memory: int) -> None:
    said, says = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(said)
        os.close(says)
        raise Unavailable(f"cannot fork: {error.strerror}") from error
    if pid == 0:
        _live_as_child(write, memory, says)
    os.close(says)
    ended = os.pidfd_open(pid)
    try:
        await _until_readable(ended)
        said_text = os.read(said, ERROR_BYTES_MAX).decode(errors="replace")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(ended)
        os.close(said)
        code = _exit_code(pid)
    if code:
        raise Unavailable(f"the child that captured the state ended with {code}: {said_text}")


def _exit_code(pid: int) -> int:
    """Of a child that has ended, or does at once."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _until_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
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
        _obey_the_kernel()
        _let_go_of_all_but(memory, says)
        with os.fdopen(memory, "w+b", closefd=False) as out:
            write(out)
        code = 0
    except BaseException:  # noqa: BLE001  there is nobody above; the parent hears of it
        os.write(says, traceback.format_exc().encode()[-ERROR_BYTES_MAX:])
    finally:
        os._exit(code)


def _obey_the_kernel() -> None:
    """Signals end the child, and so does its parent's death."""
    signal.set_wakeup_fd(-1)  # else the parent's event loop would hear of signals to the child
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _let_go_of_all_but(*kept: int) -> None:
    """Close the parent's connections, which must not outlive it."""
    for before, after in pairwise((_FIRST_FREE_FD - 1, *sorted(kept), _FDS_MAX)):
        os.closerange(before + 1, after)
