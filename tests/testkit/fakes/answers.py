"""Waiting for one answer for so long and no longer; cheaper than `asyncio.timeout`, which simulations cannot spare."""

import asyncio
from typing import TypeVar

Result = TypeVar("Result")


async def within(timeout_s: float, answer: asyncio.Future[Result]) -> Result:
    """What comes in the future, which is nobody else's to wait for; `TimeoutError` if nothing does in time."""
    handle = answer.get_loop().call_later(timeout_s, _give_up, answer)
    try:
        return await answer
    finally:
        handle.cancel()


def _give_up(answer: asyncio.Future[Result]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
