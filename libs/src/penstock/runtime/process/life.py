"""The life of a service process: open, run, drain, close; signals, the death of its parent, and the exit code.

1. Set up logs, allocator and the watch on the parent; then `open`. If it fails: one sentence on stderr, exit 1, or
   78 for an error that every later start would get again.
2. `run` works until a signal. If it ends earlier: one log line, exit 1, or 75 for `JournalStuck`.
3. SIGTERM or SIGINT: `drain` while `run` goes on, for at most `drain_deadline_ms`. A second signal kills at once.
4. Cancel `run`, then `close`. Exit 0 if no step failed.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec
import structlog
import uvloop

from penstock.contracts.errors import Conflict, Fenced, PenstockError, Unavailable
from penstock.runtime.journal import JOURNAL_STUCK_EXIT_CODE, JournalStuck
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.log_file import log_file_of
from penstock.runtime.process.logs import configure_logs
from penstock.runtime.process.memory import KEEP_FREED_BLOCKS, MallocSettings, freeze_startup_objects, tune_malloc

PARENT_VARIABLE = "PENSTOCK_PARENT_PID"
INVALID_EXIT_CODE = 78  # EX_CONFIG of sysexits.h
_TEMPORARY = (Unavailable, Conflict, Fenced)  # a later start may find another state
_PR_SET_PDEATHSIG = 1
Result = TypeVar("Result")

log = structlog.get_logger()


class LifeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the steps at the end of a process may take; the drain's deadline is a setting."""

    # A cancelled task has this long to clean up.
    cancel_grace_s: float = 2.0
    close_deadline_s: float = 5.0


DEFAULT_LIMITS = LifeLimits()


class App(Protocol):
    """A service; `close` is also called after an `open` that failed half-way."""

    async def open(self) -> None:
        """Connect and listen, in order; the user sees the text of a `PenstockError` as one sentence."""

    async def run(self) -> None:
        """Work until cancelled; a return or an exception ends the process."""

    async def drain(self) -> None:
        """Take no new work, finish the work in progress."""

    async def close(self) -> None:
        """Close everything, in reverse order."""


def run_app(
    service: str,
    config: ServiceConfig,
    make: Callable[[], App],
    *,
    limits: LifeLimits = DEFAULT_LIMITS,
    malloc: MallocSettings = KEEP_FREED_BLOCKS,
) -> int:
    """Run a service until its end and return the exit code: 0 after a clean stop, else 1 or the failure's own code."""
    configure_logs(service, config.instance, config.log_level, config.log_format, log_file=log_file_of(os.environ))
    tune_malloc(malloc)
    if not follow_parent(os.environ.get(PARENT_VARIABLE, "")):
        return 1
    return run_loop(_live(service, config, make, limits))


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine in an event loop of its own, and return its result."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _live(service: str, config: ServiceConfig, make: Callable[[], App], limits: LifeLimits) -> int:
    stop = asyncio.Event()
    _stop_on_signals(stop)
    try:
        app = make()
    except PenstockError as error:
        sys.stderr.write(f"{service}: {error}\n")
        return 1
    return await live(service, app, stop, drain_deadline_ms=config.drain_deadline_ms, limits=limits)


async def live(
    service: str,
    app: App,
    stop: asyncio.Event,
    *,
    drain_deadline_ms: int,
    limits: LifeLimits = DEFAULT_LIMITS,
    write: Callable[[str], object] = sys.stderr.write,
) -> int:
    """Run an app in this event loop until `stop`, and return the exit code that `run_app` gives its process."""

    def print_failure(step: str, cause: BaseException) -> bool:
        if step != "open" or not isinstance(cause, PenstockError):
            return False
        write(f"{service}: {cause}\n")
        return True

    return await Life(app, drain_deadline_ms / 1000, print_failure, limits).live(stop)


class Life:
    """The life of one app, from its start until a stop or a failure.

    Only `_end` decides whether a task failed.
    """

    def __init__(
        self,
        app: App,
        drain_deadline_s: float,
        report: Callable[[str, BaseException], bool] = lambda step, cause: False,
        limits: LifeLimits = DEFAULT_LIMITS,
        freeze: Callable[[], None] = freeze_startup_objects,
    ) -> None:
        """`report` gets each failed step and its cause; unless it returns True, the failure is logged."""
        self._limits = limits
        self._app = app
        self._report = report
        self._freeze = freeze
        self._drain_deadline_s = drain_deadline_s
        self._tasks: list[asyncio.Task[Any]] = []
        self._exit_code = 0
        self._drained_ms = 0  # how long the drain took; 0 if there was none

    async def live(self, stop: asyncio.Event) -> int:
        """Open, run until `stop` is set, drain and close; the exit code of a process with this app."""
        stopping = self._begin(stop.wait())
        try:
            return await self._live(stopping)
        finally:
            for task in self._tasks:
                task.cancel()

    def _begin(self, step: "Coroutine[Any, Any, Result]") -> "asyncio.Task[Result]":
        """Run a step in a task of its own, which ends with this object at the latest."""
        task = asyncio.create_task(step)
        self._tasks.append(task)
        return task

    async def _live(self, stopping: "asyncio.Task[bool]") -> int:
        if await self._open(stopping):
            self._freeze()
            log.info("service_started")
            await self._serve(stopping)
        closing = self._begin(self._app.close())
        await asyncio.wait({closing}, timeout=self._limits.close_deadline_s)
        await self._end("close", closing)
        if self._exit_code:  # the log line with its reason stays the last one
            return self._exit_code
        log.info("service_stopped", drained_ms=self._drained_ms)
        return 0

    async def _open(self, stopping: "asyncio.Task[bool]") -> bool:
        opening = self._begin(self._app.open())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await self._end("open", opening, may_be_cut_short=True) and not stopping.done()

    async def _serve(self, stopping: "asyncio.Task[bool]") -> None:
        running = self._begin(self._app.run())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            log.info("service_draining", deadline_ms=round(self._drain_deadline_s * 1000))
            began_s = asyncio.get_running_loop().time()
            draining = self._begin(self._app.drain())
            await asyncio.wait({draining, running}, timeout=self._drain_deadline_s, return_when=asyncio.FIRST_COMPLETED)
            await self._end("drain", draining, may_be_cut_short=running.done())
            self._drained_ms = round((asyncio.get_running_loop().time() - began_s) * 1000)
        elif not running.cancelled() and running.exception() is None:
            self._fail("run", RuntimeError("the service ended without a stop signal"))
        await self._end("run", running, may_be_cut_short=True)

    async def _end(self, step: str, task: "asyncio.Task[None]", *, may_be_cut_short: bool = False) -> bool:
        """End the task if it still runs; return whether it succeeded."""
        was_cut_short = not task.done()
        if was_cut_short:
            task.cancel()
            await asyncio.wait({task}, timeout=self._limits.cancel_grace_s)
        if not task.done() or (was_cut_short and not may_be_cut_short):
            self._fail(step, TimeoutError(f"{step} did not end in time"))
            return False
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(step, error)
            return False
        return True

    def _fail(self, step: str, error: BaseException) -> None:
        cause = _first_cause(error)
        self._exit_code = self._exit_code or _exit_code(step, cause)
        if self._report(step, cause):
            return
        is_expected = isinstance(cause, PenstockError | TimeoutError)
        log.error(
            "service_failed",
            step=step,
            error=str(cause) or type(cause).__name__,
            exc_info=None if is_expected else cause,
        )


def _exit_code(step: str, cause: BaseException) -> int:
    if isinstance(cause, JournalStuck):
        return JOURNAL_STUCK_EXIT_CODE
    is_final = isinstance(cause, PenstockError) and not isinstance(cause, _TEMPORARY)
    return INVALID_EXIT_CODE if step == "open" and is_final else 1


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Stop at the first signal. Later signals have the kernel's default effect: they kill the process."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def ask() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, ask)


def follow_parent(parent: str, platform: str = sys.platform) -> bool:
    """Ask the kernel for SIGTERM when the parent dies; False if the parent is already dead.

    Only Linux can do that. Elsewhere the process outlives a parent that is killed.
    """
    if not parent.isdigit():
        return True
    if platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == int(parent)
