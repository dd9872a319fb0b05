"""A put that takes unusually long is made twice, seldom; whichever comes first counts, and the other is no error."""

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, PenstockError, Unavailable
from penstock.objectstore import AlreadyExists
from penstock.objectstore.memory import MemoryStore
from penstock_flusher.hedged_puts import HedgedPuts
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.put_latency import HEDGE_LIMITS, PutLatency
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time

USUAL_S = 0.05
HEDGED_AFTER_S = HEDGE_LIMITS.hedge_after_factor * USUAL_S
SLOW_S = 5.0
SHARE = 0.5
Fate = float | PenstockError | tuple[float, PenstockError]  # when it is done; or what is raised, and when


class FatefulStore(MemoryStore):
    """Each put takes its time, as told for the first ones, or ends with an error instead."""

    def __init__(self) -> None:
        super().__init__()
        self.fates: list[Fate] = []
        self.running = 0
        self.puts = 0

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        self.puts += 1
        self.running += 1
        fate = self.fates.pop(0) if self.fates else USUAL_S
        try:
            if isinstance(fate, PenstockError):
                raise fate
            if isinstance(fate, tuple):
                await asyncio.sleep(fate[0])
                raise fate[1]
            await asyncio.sleep(fate)
            return await super().put(key, body)
        finally:
            self.running -= 1


class Hedging:
    """Hedged puts into a store whose usual time they know."""

    def __init__(self) -> None:
        self.store = FatefulStore()
        self.registry = CollectorRegistry()
        self.puts = HedgedPuts(
            store=self.store, share=SHARE, clock=VirtualClock(), metrics=FlusherMetrics(self.registry)
        )
        self._number = 0

    async def learn(self) -> None:
        for _ in range(HEDGE_LIMITS.samples_min):
            await self.put()
        self.store.puts = 0

    async def put(self, *fates: Fate, size_bytes: int = 10) -> float:
        """How long a put takes whose attempts have these fates."""
        self._number += 1
        self.store.fates = list(fates)
        began_s = asyncio.get_running_loop().time()
        await self.puts.put(f"key-{self._number}", [bytes(size_bytes)])
        assert await self.store.get(f"key-{self._number}") == bytes(size_bytes)
        return asyncio.get_running_loop().time() - began_s

    def hedges(self, first: str) -> float:
        return self.registry.get_sample_value("penstock_flusher_put_hedges_total", {"first": first}) or 0.0


@in_virtual_time
async def test_a_put_that_takes_unusually_long_is_made_again_and_the_faster_one_counts() -> None:
    hedging = Hedging()
    await hedging.learn()
    assert await hedging.put(SLOW_S) == pytest.approx(HEDGED_AFTER_S + USUAL_S)
    assert (hedging.store.puts, hedging.store.running) == (2, 0)
    assert (hedging.hedges("first"), hedging.hedges("second")) == (0, 1)


@in_virtual_time
async def test_a_usual_put_is_made_once() -> None:
    hedging = Hedging()
    await hedging.learn()
    await hedging.put()
    assert hedging.store.puts == 1


@in_virtual_time
async def test_what_exists_because_the_other_put_came_first_is_no_error() -> None:
    hedging = Hedging()
    await hedging.learn()
    exists = AlreadyExists("object exists: by the other attempt")
    assert await hedging.put(3 * USUAL_S, (USUAL_S, exists)) == pytest.approx(3 * USUAL_S)
    assert hedging.hedges("first") == 1


@in_virtual_time
async def test_one_attempts_failure_leaves_it_to_the_other() -> None:
    hedging = Hedging()
    await hedging.learn()
    rejected = (2 * USUAL_S, Unavailable("the store refused"))
    assert await hedging.put(rejected, 2 * USUAL_S) == pytest.approx(HEDGED_AFTER_S + 2 * USUAL_S)


@in_virtual_time
async def test_when_both_fail_what_may_have_had_its_effect_is_told() -> None:
    hedging = Hedging()
    await hedging.learn()
    rejected, exists = Unavailable("the store refused"), AlreadyExists("object exists")
    for first, second in ((rejected, exists), (exists, rejected)):
        with pytest.raises(Unavailable):
            await hedging.put((2 * USUAL_S, first), (2 * USUAL_S, second))
    with pytest.raises(Conflict):
        await hedging.put((2 * USUAL_S, exists), (2 * USUAL_S, exists))
    assert hedging.store.running == 0


@in_virtual_time
async def test_a_failure_before_it_took_long_is_passed_on_at_once() -> None:
    hedging = Hedging()
    await hedging.learn()
    with pytest.raises(Conflict):
        await hedging.put(AlreadyExists("object exists"))
    assert hedging.store.puts == 1


@in_virtual_time
async def test_what_is_large_is_never_put_twice() -> None:
    hedging = Hedging()
    await hedging.learn()
    assert await hedging.put(SLOW_S, size_bytes=HEDGE_LIMITS.hedged_bytes_max + 1) == pytest.approx(SLOW_S)
    assert hedging.store.puts == 1


@in_virtual_time
async def test_nothing_is_left_of_a_put_that_is_cancelled() -> None:
    hedging = Hedging()
    await hedging.learn()
    putting = asyncio.create_task(hedging.put(SLOW_S, SLOW_S))
    await asyncio.sleep(2 * USUAL_S)
    assert hedging.store.running == 2
    putting.cancel()
    await asyncio.wait([putting])
    assert putting.cancelled()
    assert hedging.store.running == 0


def test_a_store_that_is_slow_for_all_costs_its_share_of_puts_more_and_no_others() -> None:
    latency = PutLatency(0.05)
    hedges = 0
    for _ in range(1_000):
        hedges += latency.take_hedge()
        latency.record_put(1.0)
    assert hedges == pytest.approx(50, abs=1)
    for _ in range(1_000):
        latency.record_put(0.001)
    assert latency.hedge_after_s == HEDGE_LIMITS.hedge_after_s_min
    assert sum(latency.take_hedge() for _ in range(100)) == HEDGE_LIMITS.hedges_max


def test_nothing_is_put_twice_before_the_usual_time_is_known() -> None:
    latency = PutLatency(1.0)
    for _ in range(HEDGE_LIMITS.samples_min - 1):
        latency.record_put(0.01)
        assert latency.hedge_after_s is None
    latency.record_put(0.01)
    assert latency.hedge_after_s is not None
