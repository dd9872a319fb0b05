"""Periodic work at common instants: never later than the interval, and the same instants for all tasks."""

import asyncio

import pytest

from penstock.runtime.concurrency.beat import EARLY_S_MAX, next_beat_s, until_beat
from tests.testkit.fakes.virtual_time import in_virtual_time


@pytest.mark.parametrize("interval_s", [0.001, 0.1, 0.25, 1.0, 3600.0])
@pytest.mark.parametrize("now_s", [0.0, 0.1, 0.2499, 0.2501, 0.9999, 1.0, 123_456.789, 987_654_321.125])
def test_a_beat_comes_after_now_and_within_the_interval(now_s: float, interval_s: float) -> None:
    assert now_s < next_beat_s(now_s, interval_s) <= now_s + interval_s


def test_a_timer_that_ends_a_moment_early_does_not_wake_twice() -> None:
    assert next_beat_s(10.0 - EARLY_S_MAX / 2, 1.0) > 10.9
    assert next_beat_s(10.0 - EARLY_S_MAX * 2, 1.0) == 10.0


@in_virtual_time
async def test_tasks_that_began_at_different_times_wake_together() -> None:
    woken: dict[float, int] = {}

    async def beat(delay_s: float, interval_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            await until_beat(interval_s)
            at_s = round(asyncio.get_running_loop().time(), 6)
            woken[at_s] = woken.get(at_s, 0) + 1

    tasks = [asyncio.create_task(beat(delay_s, interval_s)) for delay_s in (0.01, 0.13) for interval_s in (0.25, 0.5)]
    await asyncio.sleep(2.1)
    for task in tasks:
        task.cancel()
    assert woken == {0.25: 2, 0.5: 4, 0.75: 2, 1.0: 4, 1.25: 2, 1.5: 4, 1.75: 2, 2.0: 4}
