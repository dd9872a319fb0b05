"""The transport between simulated processes: it delivers late, but always in order on one lane."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

START_MS = 1_700_000_000_000  # since 1970; the time of every correct clock at the beginning of a run
AFTER_S = 1e-6  # between two deliveries on one lane


@dataclass
class Latency:
    """The duration of one delivery: usually short, sometimes long; by default 0."""

    usual_s: float = 0.0
    long_s: float = 0.0
    long_share: float = 0.0

    def choose_s(self, stream: random.Random) -> float:
        """The duration of the next delivery."""
        usual_s, dice = self.usual_s, stream.random
        if not usual_s:
            return 0.0
        if self.long_share and dice() < self.long_share:
            return stream.uniform(usual_s, self.long_s)
        return usual_s * (0.3 + dice())


class Wire:
    """Lanes by name; `loop` is never paused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: random.Random, latency: Latency | None = None) -> None:
        self.loop = loop
        self.stream = stream
        self.latency = latency or Latency()
        self._busy_s: dict[tuple[str, str], float] = {}

    def carry(self, lane: tuple[str, str], deliver: Callable[..., None], *args: object, late_s: float = 0.0) -> None:
        """Call `deliver` at the other end, after all earlier deliveries of the lane, and `late_s` later than usual."""
        loop, busy = self.loop, self._busy_s
        when_s = loop.time() + self.latency.choose_s(self.stream) + late_s
        busy_s = busy.get(lane, 0.0)
        if when_s <= busy_s:
            when_s = busy_s + AFTER_S
        busy[lane] = when_s
        loop.call_at(when_s, deliver, *args)

    def later(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        """Call after a delay, on no lane."""
        self.loop.call_later(delay_s, call, *args)
