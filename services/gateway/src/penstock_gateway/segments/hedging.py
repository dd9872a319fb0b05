"""Decides by the answer times of the zone's cachers when to ask a second one, and which are slow. Pure."""

from collections import deque

from penstock_gateway.segments.limits import HedgingLimits

DOUBLINGS_MAX = 64  # of the time for which a slow owner is avoided: with about a thousand, a float overflows


class HedgingPolicy:
    """Learns from every answer and from every race between an owner and its substitute."""

    def __init__(self, limits: HedgingLimits) -> None:
        self._limits = limits
        self._taken_s: deque[float] = deque(maxlen=limits.samples)
        self._until_computed = limits.samples_min
        self._hedge_after_s = limits.timeout_s_max
        self._hedges = limits.hedges_max
        self._losses: dict[str, int] = {}
        self._answered_s: dict[str, float] = {}

    @property
    def hedge_after_s(self) -> float:
        """How long to wait for an answer before the same is requested from another cacher."""
        return self._hedge_after_s

    def record_answer(self, owner: str, now_s: float, *, taken_s: float, size_bytes: int) -> None:
        """Record an answer of a cacher, and its duration."""
        if len(self._answered_s) >= self._limits.owners_max:
            self._answered_s.clear()  # most of them are gone
        self._answered_s[owner] = now_s
        self._taken_s.append(taken_s)
        self._hedges = min(self._hedges + self._limits.hedges_per_byte * size_bytes, self._limits.hedges_max)
        self._until_computed -= 1
        if self._until_computed <= 0:
            self._until_computed = self._limits.computed_every
            usual_s = sorted(self._taken_s)[int(self._limits.quantile * len(self._taken_s))]
            limits = self._limits
            after_s = max(limits.timeout_factor * usual_s, limits.timeout_s_min)
            self._hedge_after_s = min(after_s, limits.timeout_s_max)

    def has_answered_since(self, owner: str, since_s: float) -> bool:
        """Whether a cacher has answered any request of this gateway at or after a time."""
        return self._answered_s.get(owner, since_s - 1) >= since_s

    def take_hedges(self, gets: int) -> bool:
        """Take the cost of a hedge out of the budget; return whether the budget had that many GETs."""
        if self._hedges < gets:
            return False
        self._hedges -= gets
        return True

    def record_won(self, owner: str) -> None:
        """Record that an owner answered before its substitute."""
        self._losses.pop(owner, None)

    def record_lost(self, owner: str) -> float:
        """Record a faster substitute; return for how many seconds to avoid the owner, 0 if it may be chance."""
        if len(self._losses) >= self._limits.owners_max:
            self._losses.clear()  # most of them are gone
        losses = self._losses[owner] = self._losses.get(owner, 0) + 1
        if losses < self._limits.losses_max:
            return 0.0
        doublings = min(losses - self._limits.losses_max, DOUBLINGS_MAX)
        avoided_s = self._limits.slow_avoided_s * 2.0**doublings
        return min(avoided_s, self._limits.slow_avoided_s_max)
