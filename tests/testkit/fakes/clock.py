"""A clock that stands still until a test moves it."""

from tests.testkit.fakes.virtual_time import START_MS


class ManualClock:
    """`Clock` with one time for both of its clocks: `now_s` seconds after `epoch_ms`."""

    def __init__(self, now_s: float = 1_000.0, epoch_ms: int = START_MS) -> None:
        self.now_s = now_s
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        return self._epoch_ms + int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s
