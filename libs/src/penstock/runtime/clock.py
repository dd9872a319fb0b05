"""Sources of time and random bytes, passed in as parameters so that tests and simulations can replace them."""

import os
import time
from typing import Protocol


class Clock(Protocol):
    """The wall clock and the monotonic clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, from this machine's wall clock; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never goes backwards."""


class Entropy(Protocol):
    """A source of random bytes."""

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


def fraction(entropy: Entropy) -> float:
    """A uniform random number from 0 (included) to 1 (excluded)."""
    return (int.from_bytes(entropy.take(7), "big") >> 3) / 2**53
