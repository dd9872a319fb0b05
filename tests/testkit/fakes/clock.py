"""A clock that stands still until a test moves it."""


class ManualClock:
    """`Clock` with one time in seconds for both of its clocks."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s
