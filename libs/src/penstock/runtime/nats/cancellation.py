"""Bounded waits for library code that may swallow a cancellation, as nats-py does in several places."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec


class CancelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often to cancel work that swallows cancellations."""

    interval_s: float = 0.05
    # Two seconds in all. Work that still runs then is abandoned.
    cancels_max: int = 40


DEFAULT_LIMITS = CancelLimits()


async def finish_within(
    work: Coroutine[Any, Any, None], timeout_s: float, *, limits: CancelLimits = DEFAULT_LIMITS
) -> None:
    """Await `work`. If it takes longer, cancel it until it ends and raise `TimeoutError`.

    `asyncio.timeout` cancels only once: work that swallows this cancellation runs for ever.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        was_in_time = task.done()
    finally:
        await _cancel_until_over(task, limits)
    if was_in_time:
        task.result()
        return
    raise TimeoutError


async def _cancel_until_over(task: "asyncio.Task[None]", limits: CancelLimits) -> None:
    for _ in range(limits.cancels_max):
        if task.done():
            break
        task.cancel()
        await asyncio.wait({task}, timeout=limits.interval_s)
    if task.done() and not task.cancelled():
        task.exception()  # read, so that asyncio does not report it as never retrieved


@contextlib.contextmanager
def honest_cancellation() -> Iterator[None]:
    """Raise `CancelledError` after the body if the body swallowed a cancellation."""
    before = cancellations()
    yield
    if cancellations() > before:
        raise asyncio.CancelledError


def cancellations() -> int:
    """How often the running task was cancelled."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
