"""The loops of one janitor: each repeats its steps, and waits longer while they fail."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from penstock.contracts.errors import PenstockError
from penstock.runtime.clock import Entropy
from penstock_janitor.config import JanitorConfig
from penstock_janitor.explain import Explain
from penstock_janitor.metrics import JanitorMetrics

# Gateways use a plan for two minutes. A fetch that began with it may take two more.
PLAN_LIFE_MS = 240_000

log = structlog.get_logger()


class LoopLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a loop waits after failures."""

    first_pause_s: float = 1.0  # doubled with each further failure
    pause_max_s: float = 60.0


class LoopContext(msgspec.Struct, frozen=True):
    """The context of all loops. `set_degraded` gets a loop's name and the reason of a failure, else ""."""

    draining: asyncio.Event
    entropy: Entropy
    metrics: JanitorMetrics
    set_degraded: Callable[[str, str], None]
    limits: LoopLimits = LoopLimits()


class Loop:
    """One loop. `step` does one round, and returns the seconds until the next round."""

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], context: LoopContext) -> None:
        self._name = name
        self._step = step
        self._context = context
        self._backoff_s = context.limits.first_pause_s

    async def run(self) -> None:
        """Run until `draining` is set. A step that has begun is finished."""
        while not self._context.draining.is_set():
            pause_s = await self._try()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._context.draining.wait()

    async def _try(self) -> float:
        context = self._context
        try:
            pause_s = await self._step()
        except PenstockError as error:
            context.metrics.failures.labels(self._name).inc()
            context.set_degraded(self._name, str(error))
            pause_s = self._backoff_s * (0.5 + context.entropy.take(1)[0] / 512)
            self._backoff_s = min(2 * self._backoff_s, context.limits.pause_max_s)
            log.warning("janitor_waits", loop=self._name, seconds=round(pause_s, 1), reason=str(error))
        else:
            context.set_degraded(self._name, "")
            self._backoff_s = context.limits.first_pause_s
        return pause_s


class Janitor:
    """One janitor without its process; `draining` ends its loops."""

    def __init__(
        self, *, config: JanitorConfig, loops: Sequence[Loop], explain: Explain, draining: asyncio.Event
    ) -> None:
        self._config = config
        self._loops = loops
        self._explain = explain
        self._draining = draining
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        self._log_settings()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._explain.run())
            async with asyncio.TaskGroup() as loops:
                for loop in self._loops:
                    loops.create_task(loop.run())
            self._stopped.set()  # the caller of `drain` ends the process

    async def drain(self) -> None:
        """Begin no more steps, and wait for NATS and the steps that have begun, up to half the drain deadline.

        A step may wait for sequencers or a store that do not answer. The next janitor finishes it, as after a crash.
        """
        self._draining.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain_deadline_ms / 2000):
                await self._explain.drain()
                await self._stopped.wait()

    def _log_settings(self) -> None:
        if self._config.grace_ms < PLAN_LIFE_MS:
            log.warning("grace_is_short", grace_ms=self._config.grace_ms, readers_need_ms=PLAN_LIFE_MS)
        if self._config.dry_run:
            log.info("dry_run", reason="nothing is deleted, expired or leased")
