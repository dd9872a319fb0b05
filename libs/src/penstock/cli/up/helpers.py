"""The helpers (janitors, compactors, the console): started once clients are served; clients never wait for them."""

import asyncio
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from penstock.cli.children import Child
from penstock.cli.spark_python import need_spark_python
from penstock.cli.up.limits import DEFAULT_LIMITS, UpLimits
from penstock.cli.up.specs import Specs
from penstock.contracts.errors import Invalid


def find_own_spark_python() -> Path:
    """The Python to run Spark with; `Invalid` with the reason if there is none (yet)."""
    return need_spark_python(os.environ)


class Helpers:
    """The helper processes; compactors do only small merges until there is a Python with Spark."""

    def __init__(
        self,
        specs: Specs,
        report: Callable[[str], None],
        *,
        limits: UpLimits = DEFAULT_LIMITS,
        find_python: Callable[[], Path] = find_own_spark_python,
    ) -> None:
        self._specs = specs
        self._report = report
        self._limits = limits
        self._find_python = find_python
        self._starting: asyncio.Task[None] | None = None
        self._is_console_wanted = asyncio.Event()
        self._console: Child | None = None
        self._ending = asyncio.Event()
        self.all: list[Child] = []

    async def run(self, is_ready: asyncio.Event) -> None:
        """Start the helpers once clients are served, and keep them alive until `begin_stop` and then `stop`."""
        async with asyncio.TaskGroup() as group:
            self._starting = group.create_task(self._start_all(group, is_ready))
            console = group.create_task(self._start_console(group))
            await self._ending.wait()
            console.cancel()
            self._starting.cancel()

    def want_console(self) -> bool:
        """Start the console, unless it runs already; whether its process runs now."""
        self._is_console_wanted.set()
        return self._console is not None and self._console.pid is not None

    def begin_stop(self) -> None:
        """Start no more helpers."""
        self._ending.set()
        if self._starting is not None:
            self._starting.cancel()

    async def stop(self) -> None:
        """End the running helpers."""
        await asyncio.gather(*(child.stop(self._limits.stop_grace_s) for child in self.all))

    async def _start_all(self, group: asyncio.TaskGroup, is_ready: asyncio.Event) -> None:
        await is_ready.wait()
        self._start(group, "janitor", sys.executable)
        if self._specs.count("compactor"):
            await self._start_compactors(group)

    async def _start_console(self, group: asyncio.TaskGroup) -> None:
        """A console costs as much memory as a gateway, so it runs from the first page on."""
        await self._is_console_wanted.wait()
        if find_spec("penstock_console") is not None:
            self._console = Child(self._specs.console(), self._report, limits=self._limits.children)
            self.all.append(self._console)
            group.create_task(self._console.keep())

    async def _start_compactors(self, group: asyncio.TaskGroup) -> None:
        """Start compactors in this environment as long as there is no Python with Spark, then with that Python."""
        small: list[Child] = []
        reported = ""
        while True:
            try:
                python = str(self._find_python())
                break
            except Invalid as error:
                if str(error) != reported:
                    reported = str(error)
                    self._report(f"only small merges run yet: {reported}")
            if not small and find_spec("penstock_compactor") is not None:
                small = self._start(group, "compactor", sys.executable)
            await asyncio.sleep(self._limits.spark_poll_s)
        if reported:
            self._report("all compaction runs now")
        await asyncio.gather(*(child.stop(self._limits.stop_grace_s) for child in small))
        self.all = [child for child in self.all if child not in small]
        self._start(group, "compactor", python)

    def _start(self, group: asyncio.TaskGroup, role: str, python: str) -> list[Child]:
        specs = self._specs.helpers(role, python)
        children = [Child(spec, self._report, limits=self._limits.children) for spec in specs]
        self.all += children
        for child in children:
            group.create_task(child.keep())
        return children
