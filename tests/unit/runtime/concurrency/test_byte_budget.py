"""A byte budget is never exceeded, and is granted in the order of the requests."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.runtime.concurrency.byte_budget import ByteBudget


class Holder:
    """A task that holds bytes of the budget until its release."""

    def __init__(self, budget: ByteBudget, size_bytes: int, order: list["Holder"]) -> None:
        self.size_bytes = size_bytes
        self._released = asyncio.Event()
        self.task = asyncio.create_task(self._hold(budget, order))

    async def _hold(self, budget: ByteBudget, order: list["Holder"]) -> None:
        async with budget.hold(self.size_bytes):
            order.append(self)
            await self._released.wait()

    async def release(self) -> None:
        self._released.set()
        await asyncio.wait([self.task])


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def holders() -> AsyncIterator[list[Holder]]:
    made: list[Holder] = []
    yield made
    for holder in made:
        holder.task.cancel()
    await asyncio.gather(*(holder.task for holder in made), return_exceptions=True)


async def test_a_small_reservation_does_not_overtake_a_large_one(holders: list[Holder]) -> None:
    budget, order = ByteBudget(100), []
    for size_bytes in (60, 80, 10):
        holders.append(Holder(budget, size_bytes, order))
    await settle()
    assert order == holders[:1]
    await holders[0].release()
    await settle()
    assert order == holders
    assert budget.used_bytes == 90


async def test_a_reservation_above_the_whole_budget_is_granted_alone(holders: list[Holder]) -> None:
    budget, order = ByteBudget(100), []
    for size_bytes in (1, 1_000, 1):
        holders.append(Holder(budget, size_bytes, order))
    await settle()
    assert order == holders[:1]
    await holders[0].release()
    await settle()
    assert order == holders[:2]
    await holders[1].release()
    await settle()
    assert order == holders


async def test_a_task_that_stops_waiting_blocks_no_other(holders: list[Holder]) -> None:
    budget, order = ByteBudget(100), []
    for size_bytes in (60, 80, 10):
        holders.append(Holder(budget, size_bytes, order))
    await settle()
    holders[1].task.cancel()
    await settle()
    assert order == [holders[0], holders[2]]


async def test_a_task_cancelled_after_its_grant_returns_the_bytes(holders: list[Holder]) -> None:
    budget, order = ByteBudget(100), []
    async with AsyncExitStack() as first:
        await first.enter_async_context(budget.hold(100))
        for _ in range(2):
            holders.append(Holder(budget, 100, order))
        await settle()
    holders[0].task.cancel()  # its bytes are granted, but it is not yet awake
    await settle()
    assert order == [holders[1]]
    assert budget.used_bytes == 100


async def test_a_task_cancelled_as_bytes_become_free_takes_none_of_them(holders: list[Holder]) -> None:
    budget, order = ByteBudget(100), []
    async with AsyncExitStack() as first:
        await first.enter_async_context(budget.hold(100))
        for _ in range(2):
            holders.append(Holder(budget, 100, order))
        await settle()
        holders[0].task.cancel()
    await settle()
    assert holders[0].task.cancelled()
    assert order == [holders[1]]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
async def test_the_budget_is_never_exceeded_and_all_of_it_comes_back(seed: int) -> None:
    chance = random.Random(seed)
    budget = ByteBudget(100)
    order: list[Holder] = []
    made: list[Holder] = []
    for _ in range(60):
        match chance.randrange(4):
            case 0 | 1:
                made.append(Holder(budget, chance.randint(0, 60), order))
            case 2 if order:
                await order[chance.randrange(len(order))].release()
            case 3 if made:
                made[chance.randrange(len(made))].task.cancel()
        await asyncio.sleep(0)
        holding = [holder for holder in order if not holder.task.done()]
        assert sum(holder.size_bytes for holder in holding) <= budget.used_bytes <= 100
    for holder in made:
        holder.task.cancel()
    await asyncio.gather(*(holder.task for holder in made), return_exceptions=True)
    assert budget.used_bytes == 0
