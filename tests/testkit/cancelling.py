"""Cancels work at a turn of the event loop, to find all that it would not give back."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def turns(count: int = 20) -> None:
    """Let other tasks run for some turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled_after(count: int, work: Coroutine[Any, Any, object], again: int | None = None) -> bool:
    """Run `work` for so many turns, then cancel it and wait for its end. False if it ended by itself before.

    After `again` more turns it is cancelled once more.
    """
    task = asyncio.create_task(work)
    for _ in range(count):
        if task.done():
            break
        await asyncio.sleep(0)
    was_running = task.cancel()
    if again is not None:
        await turns(again)
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
        assert not was_running, "the cancellation was swallowed"
    return was_running
