"""Work on long lists in a thread, so that other pages do not wait for it."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
INLINE_ROWS_MAX = 1_000  # about 5 ms of work


async def computed(rows: int, work: Callable[[], Result]) -> Result:
    """The result of `work` on so many rows; work on many rows is done in a thread."""
    return work() if rows <= INLINE_ROWS_MAX else await asyncio.to_thread(work)
