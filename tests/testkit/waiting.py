"""Waiting for a condition instead of sleeping."""

import asyncio
from collections.abc import Callable

TIMEOUT_S = 60.0  # only who waits in vain waits so long; a busy machine may need much of it
POLL_S = 0.002


async def until(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Return when `condition` holds; `TimeoutError` if it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(POLL_S)
