"""A small share of unusually slow puts is sent twice; the faster put counts, and the other is no error."""

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
Result = float | PenstockError | tuple[float, PenstockError]  # the time of a success; or an error, and its time


class ScriptedStore(MemoryStore):
    """A store with prepared results for the next puts; later puts take the usual time."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Result] = []
        self.running = 0
        self.puts = 0

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        self.puts += 1
        self.running += 1
        result = self.results.pop(0) if self.results else USUAL_S
        try:
            if isinstance(result, PenstockError):
                raise result
            if isinstance(result, tuple):
                await asyncio.sleep(result[0])
                raise result[1]
            await asyncio.sleep(result)
            return await super().put(key, body)
        finally:
            self.running -= 1


class Hedging:
    """Hedged puts into a store; after `learn` the usual latency is known."""

    def __init__(self) -> None:
        self.store = ScriptedStore()
        self.registry = CollectorRegistry()
        self.puts = HedgedPuts(
            store=self.store, share=SHARE, clock=VirtualClock(), metrics=FlusherMetrics(self.registry)
        )
        self._number = 0

    async def learn(self) -> None:
        for _ in range(HEDGE_LIMITS.samples_min):
            await self.put()
        self.store.puts = 0

    async def put(self, *results: Result, size_bytes: int = 10) -> float:
        """The time of a put whose attempts have these results."""
        self._number += 1
        self.store.results = list(results)
        began_s = asyncio.get_running_loop().time()
        await self.puts.put(f"key-{self._number}", [bytes(size_bytes)])
        assert await self.store.get(f"key-{self._number}") == bytes(size_bytes)
        return asyncio.get_running_loop().time() - began_s

    def hedges(self, first: str) -> float:
        return self.registry.get_sample_value("penstock_flusher_put_hedges_total", {"first": first}) or 0.0


@in_virtual_time
async def test_an_unusually_slow_put_is_sent_again_and_the_faster_one_counts() -> None:
    hedging = Hedging()
    await hedging.learn()
    assert await hedging.put(SLOW_S) == pytest.approx(HEDGED_AFTER_S + USUAL_S)
    assert (hedging.store.puts, hedging.store.running) == (2, 0)
    assert (hedging.hedges("first"), hedging.hedges("second")) == (0, 1)


@in_virtual_time
async def test_a_usual_put_is_sent_once() -> None:
    hedging = Hedging()
    await hedging.learn()
    await hedging.put()
    assert hedging.store.puts == 1


@in_virtual_time
async def test_an_object_that_exists_because_of_the_other_put_is_no_error() -> None:
    hedging = Hedging()
    await hedging.learn()
    exists = AlreadyExists("object exists: by the other attempt")
    assert await hedging.put(3 * USUAL_S, (USUAL_S, exists)) == pytest.approx(3 * USUAL_S)
    assert hedging.hedges("first") == 1


@in_virtual_time
async def test_after_the_failure_of_one_attempt_the_other_counts() -> None:
    hedging = Hedging()
    await hedging.learn()
    rejected = (2 * USUAL_S, Unavailable("the store rejected it"))
    assert await hedging.put(rejected, 2 * USUAL_S) == pytest.approx(HEDGED_AFTER_S + 2 * USUAL_S)


@in_virtual_time
async def test_when_both_fail_the_less_certain_error_is_raised() -> None:
    hedging = Hedging()
    await hedging.learn()
    rejected, exists = Unavailable("the store rejected it"), AlreadyExists("object exists")
    for first, second in ((rejected, exists), (exists, rejected)):
        with pytest.raises(Unavailable):
            await hedging.put((2 * USUAL_S, first), (2 * USUAL_S, second))
    with pytest.raises(Conflict):
        await hedging.put((2 * USUAL_S, exists), (2 * USUAL_S, exists))
    assert hedging.store.running == 0


@in_virtual_time
async def test_an_early_failure_is_raised_at_once() -> None:
    hedging = Hedging()
    await hedging.learn()
    with pytest.raises(Conflict):
        await hedging.put(AlreadyExists("object exists"))
    assert hedging.store.puts == 1


@in_virtual_time
async def test_a_large_segment_is_never_put_twice() -> None:
    hedging = Hedging()
    await hedging.learn()
    assert await hedging.put(SLOW_S, size_bytes=HEDGE_LIMITS.hedged_bytes_max + 1) == pytest.approx(SLOW_S)
    assert hedging.store.puts == 1


@in_virtual_time
async def test_a_cancelled_put_leaves_nothing_behind() -> None:
    hedging = Hedging()
    await hedging.learn()
    putting = asyncio.create_task(hedging.put(SLOW_S, SLOW_S))
    await asyncio.sleep(2 * USUAL_S)
    assert hedging.store.running == 2
    putting.cancel()
    await asyncio.wait([putting])
    assert putting.cancelled()
    assert hedging.store.running == 0


def test_a_generally_slow_store_causes_no_more_hedges_than_the_share() -> None:
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


def test_there_are_no_hedges_before_the_usual_latency_is_known() -> None:
    latency = PutLatency(1.0)
    for _ in range(HEDGE_LIMITS.samples_min - 1):
        latency.record_put(0.01)
        assert latency.hedge_after_s is None
    latency.record_put(0.01)
    assert latency.hedge_after_s is not None
