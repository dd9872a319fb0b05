"""Waiting tasks by name: woken by their name, and removed when they are cancelled."""

import asyncio

from penstock_sequencer.replication.wait_queue import WaitQueue


async def waiter(waiting: WaitQueue, name: str) -> "asyncio.Task[None]":
    task = asyncio.create_task(waiting.wait(name))
    await asyncio.sleep(0)
    return task


async def test_a_name_wakes_all_its_waiting_tasks_and_no_others() -> None:
    waiting = WaitQueue()
    mine = [await waiter(waiting, "a") for _ in range(3)]
    other = await waiter(waiting, "b")
    waiting.wake("a")
    await asyncio.gather(*mine)
    assert not other.done()
    waiting.wake_all()
    await other


async def test_a_cancelled_task_leaves_nothing_behind() -> None:
    waiting = WaitQueue()
    tasks = [await waiter(waiting, "a") for _ in range(3)]
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    waiting.wake("a")
    await asyncio.gather(tasks[0], tasks[2])
    assert not len(waiting)
