"""Measures the latency of small puts: decides when a second put is sent, and limits how often. Pure."""

from collections import deque

import msgspec


class HedgeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a slow put is sent a second time."""

    samples_max: int = 128  # the newest puts, which define the usual latency
    samples_min: int = 16  # with fewer samples, the usual latency is not known
    update_interval_puts: int = 8  # between two updates, because the sort of the samples costs time
    quantile: float = 0.9
    hedge_after_factor: float = 1.5  # a put that takes this much longer than the quantile is sent again
    hedge_after_s_min: float = 0.02
    hedge_after_s_max: float = 1.0
    hedges_max: float = 4.0  # unused hedges that are kept; if every put is slow, more hedges do not help
    # A larger segment is slow because of its bytes, and a second put of them is not faster. Flushers write larger
    # segments at full rate, so the number of PUTs for each GiB stays the same.
    hedged_bytes_max: int = 1024 * 1024


HEDGE_LIMITS = HedgeLimits()


class PutLatency:
    """The latency of recent puts; `share` of all puts may be sent twice."""

    def __init__(self, share: float, *, limits: HedgeLimits = HEDGE_LIMITS) -> None:
        self._share = share
        self._limits = limits
        self._taken_s: deque[float] = deque(maxlen=limits.samples_max)
        self._puts_until_update = limits.samples_min
        self._hedge_after_s: float | None = None
        self._hedges = 0.0

    @property
    def hedge_after_s(self) -> float | None:
        """The wait before a second put; None while the usual latency is not known."""
        return self._hedge_after_s

    def record_put(self, taken_s: float) -> None:
        """Record that a put took so long, up to the end of the faster one if it was hedged."""
        limits = self._limits
        self._taken_s.append(taken_s)
        self._hedges = min(self._hedges + self._share, limits.hedges_max)
        self._puts_until_update -= 1
        if self._puts_until_update <= 0:
            self._puts_until_update = limits.update_interval_puts
            usual_s = sorted(self._taken_s)[int(limits.quantile * len(self._taken_s))]
            wanted_s = limits.hedge_after_factor * usual_s
            self._hedge_after_s = min(max(wanted_s, limits.hedge_after_s_min), limits.hedge_after_s_max)

    def take_hedge(self) -> bool:
        """Take one of the allowed hedges; return whether there was one."""
        if self._hedges < 1:
            return False
        self._hedges -= 1
        return True
