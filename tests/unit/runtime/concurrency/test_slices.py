"""Long work lets other tasks run after each slice of steps, and short work never waits."""

import asyncio

from penstock.runtime.concurrency.slices import Slices


class Turns:
    """Counts how often another task may run."""

    def __init__(self) -> None:
        self.taken = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.taken += 1
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._task.cancel()


async def test_other_tasks_run_after_each_slice() -> None:
    turns, slices = Turns(), Slices(10)
    assert [item async for item in slices.of(range(100))] == list(range(100))
    turns.stop()
    assert turns.taken == 9


async def test_nested_loops_count_together() -> None:
    turns, slices = Turns(), Slices(10)
    found = [(outer, inner) async for outer in slices.of(range(9)) async for inner in slices.of("ab")]
    turns.stop()
    assert len(found) == 18
    assert turns.taken == 2


async def test_an_item_may_take_several_steps() -> None:
    turns, slices = Turns(), Slices(10)
    assert [item async for item in slices.of(range(4), steps=5)] == [0, 1, 2, 3]
    turns.stop()
    assert turns.taken == 1


async def test_work_of_one_slice_never_waits() -> None:
    turns, slices = Turns(), Slices(10)
    assert [item async for item in slices.of(range(10))] == list(range(10))
    turns.stop()
    assert turns.taken == 0
