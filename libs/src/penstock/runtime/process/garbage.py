"""When a process with a large state collects cycles, so that Python's collector never stops it for long.

Every process excludes its startup objects from collections (`freeze_startup_objects`). A process with a large state of
its own needs more. A full collection takes 40 ms at 200,000 objects. Such a state holds many more, and has no cycles.
"""

import asyncio
import gc
from typing import Protocol

from penstock.runtime.process.memory import freeze_startup_objects

YOUNG_OBJECTS = 5_000  # new containers before a look at the youngest, some 0.3 ms
YOUNG_LOOKS = 5  # of them before a look at the middle generation
NEVER = 1_000_000_000  # full collections by themselves
COLLECT_INTERVAL_S = 1.0


class GarbagePolicy(Protocol):
    """When a process collects cycles."""

    def start(self) -> None:
        """Set the collector, before the process loads its state."""

    async def run(self) -> None:
        """Collect while the process serves, until cancelled; may return if there is nothing to do."""


class LargeStatePolicy:
    """For a process with a large state: only new objects are ever looked at.

    Full collections never start by themselves. Each second one collection looks at new objects, and sets the survivors
    aside. Memory of an object that is set aside is still freed with its last reference. Only a cycle that forms and
    dies later is lost, and a process makes a handful of those in a day.
    """

    def __init__(self, interval_s: float = COLLECT_INTERVAL_S) -> None:
        self._interval_s = interval_s

    def start(self) -> None:
        """From now on only young objects are collected automatically."""
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, NEVER)

    async def run(self) -> None:
        """Collect new objects and set aside the survivors, every second."""
        while True:
            freeze_startup_objects()
            await asyncio.sleep(self._interval_s)
