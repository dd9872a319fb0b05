"""Reports of steps that take long, so that a start that waits shows the reason."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.runtime.clock import Clock, SystemClock

Result = TypeVar("Result")


class ProgressLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a step is reported."""

    after_s: float = 1.0
    # Between two reports of a step that still goes on.
    every_s: float = 10.0
    poll_s: float = 0.1


DEFAULT_LIMITS = ProgressLimits()


class Progress:
    """The present step, reported when it takes longer than a second, and then again and again."""

    def __init__(
        self, report: Callable[[str], None], *, clock: Clock | None = None, limits: ProgressLimits = DEFAULT_LIMITS
    ) -> None:
        self._report = report
        self._clock = clock or SystemClock()
        self._limits = limits
        self._step = ""
        self._began_s = self._clock.monotonic_s()
        self._due_s = 0.0

    def look(self, step: str) -> None:
        """Record the present step; call it repeatedly, also while the step is the same."""
        now_s = self._clock.monotonic_s()
        if step != self._step:
            self._step, self._began_s, self._due_s = step, now_s, now_s + self._limits.after_s
        elif now_s >= self._due_s:
            self._report(f"{step} ({now_s - self._began_s:.0f} s)")
            self._due_s = now_s + self._limits.every_s

    async def during(self, step: str, work: Awaitable[Result]) -> Result:
        """The result of the work, which is one step."""
        looking = asyncio.create_task(self._look_repeatedly(step))
        try:
            return await work
        finally:
            looking.cancel()

    async def _look_repeatedly(self, step: str) -> None:
        while True:
            self.look(step)
            await asyncio.sleep(self._limits.poll_s)


async def until_available(
    attempt: Callable[[], Awaitable[None]],
    report: Callable[[str], None],
    *,
    wait_s: float,
    retry_s: float,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Attempt until it succeeds; a temporary error is reported once, and raised after `wait_s`.

    Every other error is raised at once, because an attempt would get it again.
    """
    clock = clock or SystemClock()
    deadline_s = clock.monotonic_s() + wait_s
    is_reported = False
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= retry_s:
                raise Unavailable(f"{error}; tried for {wait_s:g} s") from error
            if not is_reported:
                report(f"{error}; trying again for {left_s:.0f} s")
                is_reported = True
        await sleep(retry_s)
