"""Full collections start by the clock, and find cycles of any age."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.runtime.process.garbage import NEVER, ScheduledPolicy
from tests.testkit.waiting import until


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


async def test_old_cycles_are_collected_by_the_clock_only() -> None:
    policy = ScheduledPolicy(interval_s=0.001)
    policy.start()
    assert gc.get_threshold()[2] == NEVER
    gone = weakref.ref(Node())
    running = asyncio.create_task(policy.run())
    await until(lambda: gone() is None)
    running.cancel()
