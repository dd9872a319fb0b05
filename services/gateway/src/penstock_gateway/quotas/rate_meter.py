"""How much somebody has used of a quota, and how long he has to wait; pure.

Credit grows with time at the quota's rate, up to what a second brings, and may be overdrawn: what has happened cannot
be undone, so its price is the time until the debt is paid. In the long run nobody gets more than the rate.
"""

from collections.abc import Sequence

BURST_S = 1.0  # what can be saved up: Kafka allows ten times that, and its clients come in bursts then
WAIT_S_MAX = 60.0  # who waited longer would take the gateway for dead; a larger debt is forgiven
SMOOTHING = 0.5  # how much the last second counts in the use that others are told
REMOVED_SHARE = 0.01  # of the quota: who uses less than that does not use it


class RateMeter:
    """What those use together who share one quota. Times are monotonic, in seconds; amounts are the quota's."""

    def __init__(self, limit: float, now_s: float) -> None:
        self.limit = limit  # per second, for all gateways together
        self.rate = limit  # per second, of which this one may give out
        self.used_per_s = 0.0  # lately
        self._credit = limit * BURST_S
        self._at_s = now_s
        self._used = 0.0  # since `measure`
        self._measured_s = now_s

    def use(self, amount: float, now_s: float) -> float:
        """So much was used; how many seconds to wait now."""
        self._grow(now_s)
        self._used += amount
        self._credit = max(self._credit - amount, -WAIT_S_MAX * self.rate)
        return self.wait_s(now_s)

    def use_if_any(self, amount: float, now_s: float) -> float:
        """Use so much if it is there, and return 0; else use nothing: how many seconds until it is there."""
        self._grow(now_s)
        if self._credit >= min(amount, self.rate * BURST_S) and self.rate > 0:
            self._used += amount
            self._credit -= amount
            return 0.0
        return min((amount - self._credit) / self.rate, WAIT_S_MAX) if self.rate > 0 else WAIT_S_MAX

    def wait_s(self, now_s: float) -> float:
        """How many seconds until the debt is paid."""
        self._grow(now_s)
        if self._credit >= 0:
            return 0.0
        return min(-self._credit / self.rate, WAIT_S_MAX) if self.rate > 0 else WAIT_S_MAX

    def measure(self, now_s: float) -> None:
        """Work out what was used lately, to be called about once a second."""
        elapsed_s = now_s - self._measured_s
        if elapsed_s <= 0:
            return
        self.used_per_s += SMOOTHING * (self._used / elapsed_s - self.used_per_s)
        if self.used_per_s < self.limit * REMOVED_SHARE:
            self.used_per_s = 0.0
        self._used, self._measured_s = 0.0, now_s

    def is_idle(self, now_s: float) -> bool:
        """Whether a new one in its place would be no different."""
        self._grow(now_s)
        return not self._used and not self.used_per_s and self._credit >= self.rate * BURST_S

    def _grow(self, now_s: float) -> None:
        self._credit = min(self._credit + (now_s - self._at_s) * self.rate, self.rate * BURST_S)
        self._at_s = now_s


def share_of(limit: float, others_per_s: Sequence[float]) -> float:
    """What one of several gateways may give out of a quota of `limit`, when the others lately gave out so much.

    An equal part is its own in any case; beyond that, what the others leave. So one that is alone has all of it, all
    together come to no more than the quota within seconds, and nothing is kept from those who want more.
    """
    active = [used for used in others_per_s if used > 0]
    return max(limit / (1 + len(active)), limit - sum(active))
