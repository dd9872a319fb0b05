"""Waiting for a condition instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.contracts.errors import Unavailable

TIMEOUT_S = 60.0  # only who waits in vain waits so long; a busy machine may need much of it
POLL_S = 0.002

Found = TypeVar("Found")


async def until(condition: Callable[[], Found], timeout_s: float = TIMEOUT_S) -> Found:
    """Return what `condition` gives when that is true; `TimeoutError` if it is not in time."""
    async with asyncio.timeout(timeout_s):
        while not (found := condition()):
            await asyncio.sleep(POLL_S)
        return found


async def known(ask: Callable[[], Awaitable[Found]], timeout_s: float = TIMEOUT_S) -> Found:
    """Ask until the answer is not that nothing is known: servers stand still at times, or are without a leader."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(POLL_S)
