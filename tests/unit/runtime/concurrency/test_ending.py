"""Work of a cancelled caller ends first, so that the caller keeps what the work needs."""

import asyncio
import threading

import pytest

from penstock.runtime.concurrency.ending import to_the_end
from tests.testkit.cancelling import turns


class Work:
    """Work that ends when the test ends it."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.has_ended = False

    async def run(self) -> str:
        await self.may_end.wait()
        self.has_ended = True
        return "done"

    async def fail(self) -> str:
        await self.run()
        raise ValueError("broken")


async def test_the_result_and_the_error_of_the_work_reach_the_caller() -> None:
    work = Work()
    work.may_end.set()
    assert await to_the_end(work.run()) == "done"
    with pytest.raises(ValueError, match="broken"):
        await to_the_end(work.fail())


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_caller_waits_for_the_end_of_the_work(fails: bool) -> None:
    work = Work()
    caller = asyncio.create_task(to_the_end(work.fail() if fails else work.run()))
    await turns(3)
    caller.cancel()
    await turns(3)
    assert not caller.done()
    work.may_end.set()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert work.has_ended


async def test_a_second_cancellation_ends_the_work() -> None:
    work = Work()
    caller = asyncio.create_task(to_the_end(work.run()))
    for _ in range(2):
        await turns(3)
        caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert not work.has_ended


async def test_a_lock_is_kept_until_the_thread_behind_it_ends() -> None:
    began, may_end, lock = threading.Event(), threading.Event(), asyncio.Lock()

    def work() -> None:
        began.set()
        assert may_end.wait(60)

    async def locked() -> None:
        async with lock:
            await to_the_end(asyncio.to_thread(work))

    caller = asyncio.create_task(locked())
    assert await asyncio.to_thread(began.wait, 60)
    caller.cancel()
    await turns(3)
    assert lock.locked()
    may_end.set()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert not lock.locked()
