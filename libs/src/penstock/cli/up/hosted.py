"""The services of `penstock up --small`: roles in this process, which the supervisor keeps alive like a child process.

They have the same life as in a process of their own: opened in order, drained, closed, and started again after a
failure. Their log lines go to the log file of the child. Only a second process can see that this one hangs.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import TextIO

from penstock.cli.agent.command import PROGRAM, make_process, read_settings
from penstock.cli.agent.roles import load_role
from penstock.cli.children import ChildSpec, Running
from penstock.contracts.errors import PenstockError
from penstock.runtime.process.config import HostingConfig
from penstock.runtime.process.life import INVALID_EXIT_CODE, App, live
from penstock.runtime.process.log_file import log_file_of
from penstock.runtime.process.logs import configure_logs

KILLED = -signal.SIGKILL


class Hosting:
    """Starts roles in this process, and sends the log lines of this process to their file."""

    def __init__(self) -> None:
        self._log: TextIO | None = None

    async def start(self, spec: ChildSpec, env: Mapping[str, str], _platform: str = "") -> Running:
        """Start the roles of a specification; a failure of theirs is an exit code, as of a process."""
        before, self._log = self._log, spec.log_path.open("a", encoding="utf-8", buffering=1)
        configure_logs(PROGRAM, spec.name, "info", "auto", self._log)  # until the settings are read
        if before is not None:
            before.close()
        return HostedRoles(spec, env, self._log)

    def close(self) -> None:
        """Log to stderr again; the roles have ended."""
        if self._log is not None:
            configure_logs("up", "up", "error", "auto")
            self._log.close()
            self._log = None


class HostedRoles:
    """The roles of one start."""

    def __init__(self, spec: ChildSpec, env: Mapping[str, str], log: TextIO) -> None:
        self.pid = os.getpid()
        self._stop = asyncio.Event()
        try:
            with contextlib.redirect_stderr(log):  # for settings that are not valid
                app, config = _build(spec, env, log)
        except SystemExit as end:
            self._life = asyncio.create_task(_ended(int(end.code or 0)))
        except PenstockError as error:
            log.write(f"{PROGRAM}: {error}\n")
            self._life = asyncio.create_task(_ended(INVALID_EXIT_CODE))
        else:
            living = live(PROGRAM, app, self._stop, drain_deadline_ms=config.drain_deadline_ms, write=log.write)
            self._life = asyncio.create_task(living)

    async def wait(self) -> int:
        """The exit code that the roles would give their process."""
        await asyncio.wait({self._life})
        return KILLED if self._life.cancelled() else self._life.result()

    def terminate(self) -> None:
        """Drain the roles, and close them."""
        self._stop.set()

    def kill(self) -> None:
        """Drain nothing; the end of this process closes what is still open."""
        self._life.cancel()


async def _ended(code: int) -> int:
    return code


def _build(spec: ChildSpec, env: Mapping[str, str], log: TextIO) -> tuple[App, HostingConfig]:
    """The roles and the settings of their process. From here on, this process logs to their file."""
    roles = [load_role(name) for name in spec.roles]
    whole, configs = read_settings(roles, [], env)
    configure_logs(PROGRAM, whole.instance, whole.log_level, whole.log_format, log, log_file=log_file_of(env))
    return make_process(whole, roles, configs), whole
