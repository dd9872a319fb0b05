"""Bounded waits for other people's code that may swallow a cancellation, as the nats client does in several places."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

CANCEL_INTERVAL_S = 0.05  # between two cancellations of work that swallowed the first
CANCELS_MAX = 40  # two seconds; work that is still not over is left behind


async def finish_within(work: Coroutine[Any, Any, None], timeout_s: float) -> None:
    """Await `work`; `TimeoutError` if it takes longer, and it is cancelled until it ends.

    `asyncio.timeout` cancels once: work that swallows that goes on for ever.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        was_in_time = task.done()
    finally:
        await _cancel_until_over(task)
    if was_in_time:
        task.result()
        return
    raise TimeoutError


async def _cancel_until_over(task: "asyncio.Task[None]") -> None:
    for _ in range(CANCELS_MAX):
        if task.done():
            break
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_INTERVAL_S)
    if task.done() and not task.cancelled():
        task.exception()  # looked at, so that it is not reported as lost


@contextlib.contextmanager
def honest_cancellation() -> Iterator[None]:
    """Raise the cancellation that came while the body ran, if the body swallowed it."""
    before = cancellations()
    yield
    if cancellations() > before:
        raise asyncio.CancelledError


def cancellations() -> int:
    """How often the running task was asked to end."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
