"""Keeps Python's cycle collector from stopping a process for long.

A full collection looks at every container there is. The modules alone are some 65,000. That takes 15 to 30 ms in which
no request is answered, every few seconds under load. They stay as long as the process does. So every process sets them
aside once it has started (`set_aside_what_stays`); later objects are collected as usual.

A process with a large state of its own needs more (`LargeStatePolicy`). A full collection takes 40 ms at 200,000
objects, and such a state holds many more. It lives on and has no cycles.
"""

import asyncio
import gc
from typing import Protocol

YOUNG_OBJECTS = 5_000  # new containers before a look at the youngest, some 0.3 ms
YOUNG_LOOKS = 5  # of them before a look at the middle generation
NEVER = 1_000_000_000  # full collections by themselves
COLLECT_INTERVAL_S = 1.0


def set_aside_what_stays() -> None:
    """Let no later collection look at the objects of now, except for cycles that are dead already."""
    gc.collect()
    gc.freeze()


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
            set_aside_what_stays()
            await asyncio.sleep(self._interval_s)
