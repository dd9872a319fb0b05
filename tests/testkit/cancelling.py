"""Cancels work at a turn of the event loop, to find all that it would not give back."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def turns(count: int = 20) -> None:
    """Let other tasks run for some turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled_after(count: int, work: Coroutine[Any, Any, object]) -> bool:
    """Run `work` for so many turns, then cancel it and wait for its end. False if it ended by itself before."""
    task = asyncio.create_task(work)
    for _ in range(count):
        if task.done():
            break
        await asyncio.sleep(0)
    was_running = task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return was_running
