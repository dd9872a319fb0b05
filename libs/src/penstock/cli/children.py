"""Child processes that are kept alive: started, restarted with back-off after a failure, stopped on request."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.cli.last_words import LogStart
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.log_file import LOG_BYTES_VARIABLE, LOG_FILE_VARIABLE, old_log
from penstock.runtime.process.shared_host import instance_of

INSTANCE_VARIABLE = "PENSTOCK_INSTANCE"
INSTANCE_ENTROPY_BYTES = 4
LOG_BYTES_MAX = 32 * 1024 * 1024
_PR_SET_PDEATHSIG = 1


class ChildLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a child is restarted, and how large its log may grow."""

    # Short, so that a killed service is back before its clients give up.
    restart_delay_ms_min: int = 200
    # Long, so that a service that cannot start does not load the machine.
    restart_delay_ms_max: int = 10_000
    # A child that lived longer than this is restarted after the shortest delay.
    healthy_after_s: float = 10.0
    # A process empties a larger log, or it is renamed at the child's next start; one old log is kept.
    log_bytes_max: int = LOG_BYTES_MAX


DEFAULT_LIMITS = ChildLimits()


class ChildSpec(msgspec.Struct, frozen=True):
    """A program to run; `name` is unique, and the log file has this name.

    A service announces itself under a name that is new for each start, and begins with `name`. A process with several
    services announces each of them.

    All children stay in the session of their parent. Linux divides the processor between sessions first, and a priority
    counts only inside of its session (autogroups).
    """

    name: str
    argv: list[str]
    env: dict[str, str]
    log_path: Path
    roles: tuple[str, ...] = ()  # the services in it

    @property
    def is_service(self) -> bool:
        """Whether the process announces itself."""
        return bool(self.roles)


class Running(Protocol):
    """A child that runs: a process, or services in this process."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """The exit code, negative for a signal."""

    def terminate(self) -> None:
        """Ask for a clean end."""

    def kill(self) -> None:
        """End now."""


Start = Callable[[ChildSpec, Mapping[str, str], str], Awaitable[Running]]  # with its environment and the platform


async def start_process(spec: ChildSpec, env: Mapping[str, str], platform: str) -> Running:
    """Start a program, whose output is appended to the log file."""
    with spec.log_path.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=partial(_before_exec, platform),
        )


def _before_exec(platform: str) -> None:
    os.setpgid(0, 0)  # Ctrl-C reaches only the parent, which stops the children in order
    die_with_parent(platform)


def die_with_parent(platform: str = sys.platform) -> None:
    """Ask the kernel for SIGTERM when the parent dies. The child calls this before exec, so no child is left behind.

    Only Linux can do that. Elsewhere a child outlives a parent that is killed.
    """
    if platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One child process and its restarts; `keep` owns it until `stop`.

    After an unexpected end, `after_death` is called with the exit code before the child is restarted.
    """

    def __init__(
        self,
        spec: ChildSpec,
        report: Callable[[str], None],
        after_death: Callable[[int], Awaitable[None]] | None = None,
        *,
        limits: ChildLimits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        platform: str = sys.platform,
        start: Start = start_process,
    ) -> None:
        self._platform = platform
        self._start_it = start
        self._entropy = entropy or SystemEntropy()
        self._log_start = LogStart(spec.log_path)
        self._limits = limits
        self._clock = clock or SystemClock()
        self.spec = spec
        self.restarts = 0
        self.pid: int | None = None
        self.instance = ""  # the name under which the running service announces itself
        self.was_heard = False  # whether it has done so
        self.last_code: int | None = None  # the exit code of the last unexpected end
        self.error = ""  # its last words at that end
        self._died_s: float | None = None  # until it is back
        self._report = report
        self._after_death = after_death
        self._stopping = asyncio.Event()
        self._starting = asyncio.Lock()  # held while a process may exist that `_process` does not name yet
        self._process: Running | None = None
        self._has_ended = asyncio.Event()  # set when `_process` is None again
        self._started_s = 0.0

    @property
    def instances(self) -> list[str]:
        """The names under which the running process announces its services."""
        if len(self.spec.roles) == 1:
            return [self.instance]
        return [instance_of(self.instance, role) for role in self.spec.roles]

    @property
    def is_settled(self) -> bool:
        """Whether the child runs, and has run for some seconds."""
        return self._process is not None and self._has_lived_long()

    @property
    def lived_s(self) -> float:
        """The time since the last start."""
        return self._clock.monotonic_s() - self._started_s

    def hear(self) -> None:
        """Record that the running child works; report it if the child died before."""
        self.was_heard = True
        if self._died_s is not None and self.last_code is not None:
            gone_s = self._clock.monotonic_s() - self._died_s
            self._report(f"{self.spec.name} died ({_cause(self.last_code)}), back after {gone_s:.1f} s")
            self._died_s = None

    async def keep(self) -> None:
        """Start the child, and restart it whenever it dies, until `stop` is called."""
        limits = self._limits
        delay_ms = limits.restart_delay_ms_min
        while not self._stopping.is_set():
            self._started_s = self._clock.monotonic_s()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            delay_ms = limits.restart_delay_ms_min if self._has_lived_long() else delay_ms
            self.last_code = code
            self._died_s = self._clock.monotonic_s() if self._died_s is None else self._died_s
            self.error = self._log_start.last_words()
            why = f": {self.error}" if self.error else ""
            self._report(f"{self.spec.name} died ({_cause(code)}){why}; restarting it in {delay_ms / 1000:g} s")
            if self._after_death is not None:
                await self._after_death(code)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_ms / 1000)
            delay_ms = min(delay_ms * 2, limits.restart_delay_ms_max)
            self.restarts += 1

    async def _run_once(self) -> int:
        async with self._starting:
            process = await self._start()
            self._process, self.pid = process, process.pid
            self._has_ended.clear()
        if self._stopping.is_set():  # the stop came during the start; the child has no work yet that needs a clean end
            self.kill()
        try:
            return await process.wait()
        finally:
            self._process, self.pid = None, None
            self._has_ended.set()

    async def _start(self) -> Running:
        _rename_if_large(self.spec.log_path, self._limits.log_bytes_max)
        self.instance = f"{self.spec.name}-{self._entropy.take(INSTANCE_ENTROPY_BYTES).hex()}"
        self.was_heard = False
        self._log_start = LogStart(self.spec.log_path)
        return await self._start_it(self.spec, self.spec.env | self._own_settings(), self._platform)

    def _own_settings(self) -> dict[str, str]:
        """The settings of a service that are new for each start."""
        if not self.spec.is_service:
            return {}
        return {
            INSTANCE_VARIABLE: self.instance,
            LOG_FILE_VARIABLE: str(self.spec.log_path),
            LOG_BYTES_VARIABLE: str(self._limits.log_bytes_max),
        }

    async def restart(self, grace_s: float) -> None:
        """End the child as `stop` does; `keep` then starts it again."""
        if self._process is not None:
            await self._end(self._process, grace_s)

    async def stop(self, grace_s: float) -> None:
        """End the child: SIGTERM, and SIGKILL if it still runs after `grace_s` seconds."""
        self._stopping.set()
        async with self._starting:
            process = self._process
        if process is not None:
            await self._end(process, grace_s)

    async def _end(self, process: Running, grace_s: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            self._report(f"{self.spec.name} did not stop within {grace_s:g} s; killing it")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._process is process:  # since Python 3.14 `keep` may learn of the end after this task
            await self._has_ended.wait()

    def kill(self) -> None:
        """Kill the child now."""
        self._stopping.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _has_lived_long(self) -> bool:
        return self._clock.monotonic_s() - self._started_s > self._limits.healthy_after_s


def _cause(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _rename_if_large(path: Path, bytes_max: int) -> None:
    if path.exists() and path.stat().st_size > bytes_max:
        path.replace(old_log(path))
