"""Waits that end although the awaited work swallows its cancellation."""

import asyncio

import pytest

from penstock.runtime.nats.cancellation import CancelLimits, finish_within, honest_cancellation

SHORT = CancelLimits(interval_s=0.002)


class Stubborn:
    """Work that swallows a number of cancellations, as a retry loop that catches too many exceptions."""

    def __init__(self, swallows: int) -> None:
        self.left = swallows
        self.is_over = False

    async def work(self) -> None:
        try:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if not self.left:
                        raise
                    self.left -= 1
        finally:
            self.is_over = True


async def succeed() -> None:
    await asyncio.sleep(0)


async def fail() -> None:
    raise ValueError("it failed")


async def test_work_that_ends_in_time_keeps_its_result() -> None:
    await finish_within(succeed(), 5)
    with pytest.raises(ValueError, match="it failed"):
        await finish_within(fail(), 5)


@pytest.mark.parametrize("swallows", [0, 1, 5])
async def test_late_work_is_cancelled_until_it_ends(swallows: int) -> None:
    stubborn = Stubborn(swallows)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(finish_within(stubborn.work(), 0.001, limits=SHORT), 5)
    assert stubborn.is_over


async def test_work_that_never_ends_is_abandoned() -> None:
    stubborn = Stubborn(3)
    limits = CancelLimits(interval_s=0.002, cancels_max=3)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(finish_within(stubborn.work(), 0.001, limits=limits), 5)
    assert not stubborn.is_over


async def test_a_waiting_task_can_be_cancelled_and_the_work_ends_too() -> None:
    stubborn = Stubborn(2)
    waiting = asyncio.create_task(finish_within(stubborn.work(), 60, limits=SHORT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    assert stubborn.is_over


async def test_a_swallowed_cancellation_is_raised_after_all() -> None:
    begun = asyncio.Event()

    async def swallowing() -> str:
        with honest_cancellation():
            try:
                begun.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
        return "went on"

    task = asyncio.create_task(swallowing())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_without_a_cancellation_nothing_is_raised() -> None:
    async def working() -> str:
        with honest_cancellation():
            await asyncio.sleep(0)
        return "done"

    assert await asyncio.create_task(working()) == "done"
