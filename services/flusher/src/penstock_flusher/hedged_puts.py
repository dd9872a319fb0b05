"""Repeats a put that takes unusually long, so that one slow answer does not delay all later segments.

Both puts have the same bytes and the same key, and never overwrite. The first put to arrive creates the object, and the
other one fails because the object exists. That is no error, because no other flusher uses the key.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, PenstockError
from penstock.runtime.clock import Clock
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.put_latency import HEDGE_LIMITS, HedgeLimits, PutLatency


class SegmentStore(Protocol):
    """The part of a store that the flush queue needs."""

    async def put(self, key: str, body: Sequence[Buffer]) -> str: ...


class HedgedPuts:
    """Puts to a store that retries; a share of the small puts is sent twice."""

    def __init__(
        self,
        *,
        store: SegmentStore,
        share: float,
        clock: Clock,
        metrics: FlusherMetrics,
        limits: HedgeLimits = HEDGE_LIMITS,
    ) -> None:
        self._store = store
        self._latency = PutLatency(share, limits=limits)
        self._hedged_bytes_max = limits.hedged_bytes_max
        self._clock = clock
        self._metrics = metrics

    async def put(self, key: str, body: Sequence[Buffer]) -> str:
        """Put as the store does; if both puts fail, raise the error with the less certain outcome."""
        if sum(map(len, body)) > self._hedged_bytes_max:
            return await self._store.put(key, body)
        began_s = self._clock.monotonic_s()
        first = asyncio.create_task(self._store.put(key, body))
        second: asyncio.Task[str] | None = None
        try:
            while second is None and not (await asyncio.wait([first], timeout=self._latency.hedge_after_s))[0]:
                if self._latency.take_hedge():
                    second = asyncio.create_task(self._store.put(key, body))
            etag = await _first_of([first] if second is None else [first, second])
            self._latency.record_put(self._clock.monotonic_s() - began_s)
            if second is not None:
                self._metrics.put_hedges.labels("first" if first.done() else "second").inc()
            return etag
        finally:
            await _end([task for task in (first, second) if task is not None])


async def _first_of(puts: Sequence["asyncio.Task[str]"]) -> str:
    """The first success; if all fail, one error, preferably of a put that may have had an effect."""
    pending = set(puts)
    failure: PenstockError | None = None
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in [each for each in puts if each in done]:
            try:
                return task.result()
            except PenstockError as error:
                if failure is None or isinstance(failure, Conflict):
                    failure = error
    assert failure is not None, "every put ends"
    raise failure


async def _end(puts: Sequence["asyncio.Task[str]"]) -> None:
    """Cancel the puts that still run, and return when all have ended."""
    for task in puts:
        task.cancel()
    await asyncio.gather(*puts, return_exceptions=True)
