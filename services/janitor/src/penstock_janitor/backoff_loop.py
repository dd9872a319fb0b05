"""Does something again and again: at its own pace while that goes well, ever more slowly while it does not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from penstock.contracts.errors import PenstockError
from penstock.runtime.clock import Entropy
from penstock_janitor.metrics import JanitorMetrics

FIRST_PAUSE_S = 1.0
PAUSE_MAX_S = 60.0

log = structlog.get_logger()


class Around(msgspec.Struct, frozen=True):
    """What the loops of a janitor have in common; `tell` hears what is wrong, by the loop's name."""

    leaving: asyncio.Event
    entropy: Entropy
    metrics: JanitorMetrics
    tell: Callable[[str, str], None]


class Loop:
    """One of a janitor's loops; `step` does one round and returns the seconds until the next."""

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], around: Around) -> None:
        self._name = name
        self._step = step
        self._around = around
        self._fruitless_s = FIRST_PAUSE_S

    async def run(self) -> None:
        """Until `leaving` is set; the round that is under way then is brought to its end."""
        while not self._around.leaving.is_set():
            pause_s = await self._try()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._around.leaving.wait()

    async def _try(self) -> float:
        try:
            pause_s = await self._step()
        except PenstockError as error:
            self._around.metrics.failures.labels(self._name).inc()
            self._around.tell(self._name, str(error))
            pause_s = self._fruitless_s * (0.5 + self._around.entropy.take(1)[0] / 512)
            self._fruitless_s = min(2 * self._fruitless_s, PAUSE_MAX_S)
            log.warning("janitor_waits", loop=self._name, seconds=round(pause_s, 1), reason=str(error))
        else:
            self._around.tell(self._name, "")
            self._fruitless_s = FIRST_PAUSE_S
        return pause_s
