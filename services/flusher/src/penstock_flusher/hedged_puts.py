"""Puts what takes unusually long once more, so that one slow answer of the store does not hold up all behind it.

Both put the same bytes under the same name, and create only: whichever comes first makes the object, and to the other
it exists. That one is no error, since nobody else has the name.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, PenstockError
from penstock.runtime.clock import Clock
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.put_latency import PutPace

# What is larger takes long because of its bytes, which twice as many would not make faster. It is what flushers write
# at full rate, too, so the PUTs of a GiB stay what they are.
HEDGED_BYTES_MAX = 1024 * 1024


class Puts(Protocol):
    """The part of a store that flushes need."""

    async def put(self, key: str, body: Sequence[Buffer]) -> str: ...


class HedgedPuts:
    """Puts of a store that retries; a share of those that are small are made twice."""

    def __init__(self, store: Puts, share: float, clock: Clock, metrics: FlusherMetrics) -> None:
        self._store = store
        self._pace = PutPace(share)
        self._clock = clock
        self._metrics = metrics

    async def put(self, key: str, body: Sequence[Buffer]) -> str:
        """As the store; with two under way the error is the one that leaves more open."""
        if sum(map(len, body)) > HEDGED_BYTES_MAX:
            return await self._store.put(key, body)
        began_s = self._clock.monotonic_s()
        first = asyncio.create_task(self._store.put(key, body))
        second: asyncio.Task[str] | None = None
        try:
            while second is None and not (await asyncio.wait([first], timeout=self._pace.patience_s))[0]:
                if self._pace.take_hedge():
                    second = asyncio.create_task(self._store.put(key, body))
            etag = await _first_of([first] if second is None else [first, second])
            self._pace.record_put(self._clock.monotonic_s() - began_s)
            if second is not None:
                self._metrics.put_hedges.labels("first" if first.done() else "second").inc()
            return etag
        finally:
            await _end([task for task in (first, second) if task is not None])


async def _first_of(puts: Sequence["asyncio.Task[str]"]) -> str:
    """The first success; when all have failed the error of one, rather one that may have had its effect."""
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
    """Cancel those that still run, and return when none does."""
    for task in puts:
        task.cancel()
    await asyncio.gather(*puts, return_exceptions=True)
