"""A loop's pauses: as its steps ask while they succeed, longer after each failure, and short again after a success."""

import asyncio
import itertools

from prometheus_client import CollectorRegistry

from penstock.contracts.errors import Corrupt, Unavailable
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.service import Loop, LoopContext, LoopLimits
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.janitor.janitor_world import SeededEntropy

LIMITS = LoopLimits()


class Steps:
    """Steps of a loop, some of which fail."""

    def __init__(self, *failures: Exception | None) -> None:
        self.times_s: list[float] = []
        self.reported: list[tuple[str, str]] = []
        self.draining = asyncio.Event()
        self.registry = CollectorRegistry()
        self._failures = iter(failures)
        context = LoopContext(self.draining, SeededEntropy(), JanitorMetrics(self.registry), self._report, LIMITS)
        self.loop = Loop("loop", self._step, context)

    async def _step(self) -> float:
        self.times_s.append(asyncio.get_running_loop().time())
        try:
            failure = next(self._failures)
        except StopIteration:
            self.draining.set()
            return 0
        if failure is not None:
            raise failure
        return 7.0

    def _report(self, name: str, reason: str) -> None:
        self.reported.append((name, reason))

    @property
    def pauses_s(self) -> list[float]:
        return [later - sooner for sooner, later in itertools.pairwise(self.times_s)]


@in_virtual_time
async def test_while_steps_succeed_each_step_sets_the_pause() -> None:
    steps = Steps(None, None, None)
    await steps.loop.run()
    assert steps.pauses_s == [7.0, 7.0, 7.0]
    assert set(steps.reported) == {("loop", "")}


@in_virtual_time
async def test_after_failures_the_pauses_grow_up_to_a_minute() -> None:
    steps = Steps(*[Unavailable("503 SlowDown")] * 12)
    await steps.loop.run()
    expected_s = LIMITS.first_pause_s
    for pause_s in steps.pauses_s:
        assert expected_s / 2 <= pause_s <= expected_s
        expected_s = min(2 * expected_s, LIMITS.pause_max_s)
    assert expected_s == LIMITS.pause_max_s
    assert steps.reported[-2:] == [("loop", "503 SlowDown"), ("loop", "")]
    assert steps.registry.get_sample_value("penstock_janitor_failures_total", {"loop": "loop"}) == 12


@in_virtual_time
async def test_after_a_success_the_next_failure_begins_with_a_short_pause() -> None:
    steps = Steps(*[Corrupt("damaged")] * 5, None, Unavailable("again"))
    await steps.loop.run()
    assert steps.pauses_s[-1] <= LIMITS.first_pause_s


@in_virtual_time
async def test_a_draining_loop_waits_for_no_pause() -> None:
    steps = Steps(None, None)
    running = asyncio.create_task(steps.loop.run())
    await asyncio.sleep(1)
    steps.draining.set()
    await running
    assert asyncio.get_running_loop().time() == 1
