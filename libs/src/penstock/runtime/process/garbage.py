"""The garbage collection of a process with a large state, arranged so that no collection stops it for long.

Every process excludes its startup objects from collections (`freeze_startup_objects`). A process with a large state
needs more. A full collection takes 40 ms at 200,000 objects. Such a state has many more objects, and no cycles.
"""

import asyncio
import gc
from typing import Protocol

from penstock.runtime.process.memory import freeze_startup_objects

YOUNG_OBJECTS = 5_000  # new containers before a collection of the youngest generation (some 0.3 ms).
YOUNG_COLLECTIONS = 5  # before one of the middle generation.
NEVER = 1_000_000_000  # no automatic full collection.
COLLECT_INTERVAL_S = 1.0
FULL_COLLECT_INTERVAL_S = 30.0


def collect_frozen() -> None:
    """Collect all garbage, also cycles of frozen objects; a process does it seldom, when a large part of it ended."""
    gc.unfreeze()
    freeze_startup_objects()


class GarbagePolicy(Protocol):
    """When a process collects cycles."""

    def start(self) -> None:
        """Configure the collector before the process loads its state."""

    async def run(self) -> None:
        """Collect while the process serves, until cancelled; may return if there is nothing to do."""


class ScheduledPolicy:
    """For a process whose requests make many objects: full collections start by the clock only.

    Otherwise a request with 240,000 elements starts several, and each visits all elements that exist by then.
    """

    def __init__(self, interval_s: float = FULL_COLLECT_INTERVAL_S) -> None:
        self._interval_s = interval_s

    def start(self) -> None:
        """Limit automatic collections to young objects."""
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)

    async def run(self) -> None:
        """Collect all garbage now and then."""
        while True:
            await asyncio.sleep(self._interval_s)
            gc.collect()


class PolicyOfAnother:
    """For a role beside one with a policy: a process has one collector."""

    def start(self) -> None:
        """Does nothing."""

    async def run(self) -> None:
        """Returns at once."""


class LargeStatePolicy:
    """For a process with a large state: the collector visits only new objects.

    Full collections never start automatically. Each second, one collection visits the new objects and freezes the
    survivors. Memory of a frozen object is still freed with its last reference. Only a cycle that forms and dies later
    is never freed. A process makes a handful of those in a day.
    """

    def __init__(self, interval_s: float = COLLECT_INTERVAL_S) -> None:
        self._interval_s = interval_s

    def start(self) -> None:
        """Limit automatic collections to young objects."""
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)

    async def run(self) -> None:
        """Collect new objects and freeze the survivors, every second."""
        while True:
            freeze_startup_objects()
            await asyncio.sleep(self._interval_s)
