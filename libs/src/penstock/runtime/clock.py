"""Time and chance, passed in to everything that needs them, so that tests and simulations can choose them."""

import os
import time
from typing import Protocol


class Clock(Protocol):
    """The two times there are."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 by this machine's wall clock; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes backwards."""


class Entropy(Protocol):
    """Where random bytes come from."""

    def take(self, count: int) -> bytes:
        """`count` random bytes."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000  # noqa: TID251  the one place that reads the wall clock

    def monotonic_s(self) -> float:
        return time.monotonic()


class SystemEntropy:
    """The kernel's random bytes."""

    def take(self, count: int) -> bytes:
        return os.urandom(count)
