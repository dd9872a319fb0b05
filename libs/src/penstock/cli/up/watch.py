"""The watch over the running services: their returns after a death, and processes that hang."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from penstock.cli.children import Child
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.presence import Directory
from penstock.runtime.concurrency.beat import next_beat_s

# A service that is not heard for so long after its start hangs. A compactor needs some seconds to start.
START_S_MAX = 60.0


def is_hung(child: Child, directory: Directory) -> bool:
    """Whether the process runs, but its announcements do not arrive."""
    if not child.spec.is_service or child.pid is None or _are_heard(child, directory):
        return False
    return child.was_heard or child.lived_s > START_S_MAX


class Watch:
    """Reports when a service is back, hangs, or answers again."""

    def __init__(
        self, children: Callable[[], Sequence[Child]], directory: Directory, bus: Bus, report: Callable[[str], None]
    ) -> None:
        self._children = children
        self._directory = directory
        self._bus = bus
        self._report = report
        self._hung: dict[str, int | None] = {}  # the processes that hang, with their pids

    async def run(self, poll_s: float) -> None:
        """Watch for ever: after each change in the directory, and else after `poll_s`."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        self._directory.subscribe(changed.set)
        while True:
            for child in self._children():
                self.look(child)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_beat_s(loop.time(), poll_s)):
                    await changed.wait()
            changed.clear()

    def look(self, child: Child) -> None:
        """Report a change of one process."""
        if self._is_heard(child):
            child.hear()
        name, was_hung = child.spec.name, child.spec.name in self._hung
        if is_hung(child, self._directory):
            if not was_hung:
                self._report(f"{name} hangs: process {child.pid} runs, but does not answer")
            self._hung[name] = child.pid
        elif was_hung and self._hung.pop(name) == child.pid:
            self._report(f"{name} answers again")

    def _is_heard(self, child: Child) -> bool:
        if child.pid is None:
            return False
        if not child.spec.is_service:  # the nats-server
            return self._bus.is_connected
        return _are_heard(child, self._directory)


def _are_heard(child: Child, directory: Directory) -> bool:
    """Whether the announcements of all services in a process arrive."""
    return all(directory.get(instance) is not None for instance in child.instances)
