"""Measures the use of one quota, and computes how long its clients must wait; pure.

Credit grows with time at the quota's rate, up to the credit of one second. It may become negative, because a request
that was served cannot be undone: the client then waits until the credit is 0 again. Over time no client exceeds the
rate.
"""

from collections.abc import Sequence

BURST_S = 1.0  # the largest credit, as seconds of the rate; Kafka allows 10 s, and its clients send in bursts then
WAIT_S_MAX = 60.0  # a client that waited longer would take the gateway for dead; the rest of a larger debt is dropped
SMOOTHING = 0.5  # the weight of the last second in the use that other gateways see
REMOVED_SHARE = 0.01  # of the quota: a smaller use is reported as 0


class RateMeter:
    """The use of all clients that share one quota. Times are monotonic, in seconds; amounts have the quota's unit."""

    def __init__(self, limit: float, now_s: float) -> None:
        self.limit = limit  # per second, for all gateways together
        self.rate = limit  # per second, for this gateway
        self.used_per_s = 0.0  # smoothed
        self._credit = limit * BURST_S
        self._at_s = now_s
        self._used = 0.0  # since `measure`
        self._measured_s = now_s

    def use(self, amount: float, now_s: float) -> float:
        """Count this use; return how many seconds to wait now."""
        self._grow(now_s)
        self._used += amount
        self._credit = max(self._credit - amount, -WAIT_S_MAX * self.rate)
        return self.wait_s(now_s)

    def use_if_any(self, amount: float, now_s: float) -> float:
        """Use this amount if the credit allows it, and return 0. Else use nothing, and return the seconds to wait."""
        self._grow(now_s)
        if self._credit >= min(amount, self.rate * BURST_S) and self.rate > 0:
            self._used += amount
            self._credit -= amount
            return 0.0
        return min((amount - self._credit) / self.rate, WAIT_S_MAX) if self.rate > 0 else WAIT_S_MAX

    def wait_s(self, now_s: float) -> float:
        """How many seconds until the credit is not negative."""
        self._grow(now_s)
        if self._credit >= 0:
            return 0.0
        return min(-self._credit / self.rate, WAIT_S_MAX) if self.rate > 0 else WAIT_S_MAX

    def measure(self, now_s: float) -> None:
        """Update `used_per_s`. Call this about once a second."""
        elapsed_s = now_s - self._measured_s
        if elapsed_s <= 0:
            return
        self.used_per_s += SMOOTHING * (self._used / elapsed_s - self.used_per_s)
        if self.used_per_s < self.limit * REMOVED_SHARE:
            self.used_per_s = 0.0
        self._used, self._measured_s = 0.0, now_s

    def is_idle(self, now_s: float) -> bool:
        """Whether the meter is in the same state as a new one, so that it can be removed."""
        self._grow(now_s)
        return not self._used and not self.used_per_s and self._credit >= self.rate * BURST_S

    def _grow(self, now_s: float) -> None:
        self._credit = min(self._credit + (now_s - self._at_s) * self.rate, self.rate * BURST_S)
        self._at_s = now_s


def share_of(limit: float, others_per_s: Sequence[float]) -> float:
    """The rate that one gateway may use of a quota of `limit`, given the present use of the other gateways.

    Each active gateway may always use an equal part, and also the part that the other gateways do not use. So a
    gateway alone has the whole quota, and no part stays unused while a gateway needs it. All gateways together come
    down to the quota within seconds.
    """
    active = [used for used in others_per_s if used > 0]
    return max(limit / (1 + len(active)), limit - sum(active))
