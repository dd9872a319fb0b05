"""Divides long work into slices, so that the event loop serves other tasks between them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Item = TypeVar("Item")

# A step takes 2 to 10 microseconds in most loops, so a slice takes one or two milliseconds.
SLICE_STEPS = 256


class Slices:
    """The steps of one long work, in all its loops: after each slice other tasks run.

    It counts steps, and reads no clock: so a run with the same input has the same order of tasks. Work with fewer
    steps than one slice never waits.
    """

    def __init__(self, slice_steps: int = SLICE_STEPS) -> None:
        self._slice_steps = slice_steps
        self._left = slice_steps

    async def of(self, items: Iterable[Item], steps: int = 1) -> AsyncIterator[Item]:
        """The items. Loops may be nested: each item of each loop takes so many steps."""
        for item in items:
            if self._left <= 0:
                self._left = self._slice_steps
                await asyncio.sleep(0)
            self._left -= steps
            yield item
