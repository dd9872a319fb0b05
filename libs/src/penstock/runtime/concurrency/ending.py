"""Work that ends before its caller does, even if the caller is cancelled."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`. A cancelled caller first waits for its end; a second cancellation ends the work, too.

    So the caller keeps a lock or a reservation as long as a thread needs it. Connections cancel their requests once.
    The second cancellation is the end of the process.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):  # no caller is left that could handle the error
            await task
        raise
