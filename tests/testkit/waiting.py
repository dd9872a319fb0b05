"""Waiting for a condition instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.contracts.errors import Unavailable

TIMEOUT_S = 60.0  # a busy machine may need much of it
POLL_S = 0.002

Found = TypeVar("Found")


async def until(condition: Callable[[], Found], timeout_s: float = TIMEOUT_S) -> Found:
    """Return the first true value of `condition`; `TimeoutError` if none comes in time."""
    async with asyncio.timeout(timeout_s):
        while not (found := condition()):
            await asyncio.sleep(POLL_S)
        return found


async def known(ask: Callable[[], Awaitable[Found]], timeout_s: float = TIMEOUT_S) -> Found:
    """Repeat a question until the answer is not `Unavailable`: servers may pause or have no leader for a moment."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(POLL_S)
