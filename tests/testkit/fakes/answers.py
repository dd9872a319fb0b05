"""Waiting for one answer with a timeout, at a lower cost than `asyncio.timeout`, as simulations wait very often."""

import asyncio
from typing import TypeVar

Result = TypeVar("Result")


async def within(timeout_s: float, answer: asyncio.Future[Result]) -> Result:
    """The result of a future that no other task awaits; `TimeoutError` if it does not come in time."""
    handle = answer.get_loop().call_later(timeout_s, _give_up, answer)
    try:
        return await answer
    finally:
        handle.cancel()


def _give_up(answer: asyncio.Future[Result]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
