"""How long the zone's cachers take to answer: when to ask another one as well, and who is slow. Pure."""

from collections import deque

SAMPLES = 256  # the answers looked back on
SAMPLES_MIN = 16  # with fewer nothing is known
RECKONED_EVERY = 32  # answers, as sorting them costs something
QUANTILE = 0.95
PATIENCE_FACTOR = 3  # an answer that takes so much longer than nearly all others is not waited for alone
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.02, 0.5
# GETs that hedges may cost: where everything is slow they help nobody. A slow owner is found out by a few. They are in
# all no more than what reading in the writer's zone may cost: 5 for the first GiB, 2 for each that follows.
HEDGES_PER_BYTE = 2 / 2**30
HEDGES_MAX = 3.0  # at once, of those that were not used
OWNERS_MAX = 1_000  # remembered
LOSSES_MAX = 3  # in a row: then the owner is slow
SLOW_AVOIDED_S, SLOW_AVOIDED_S_MAX = 5.0, 60.0


class HedgingPolicy:
    """Learns from every answer and from every race between an owner and its substitute."""

    def __init__(self) -> None:
        self._taken_s: deque[float] = deque(maxlen=SAMPLES)
        self._until_reckoned = SAMPLES_MIN
        self._patience_s = PATIENCE_S_MAX
        self._hedges = HEDGES_MAX
        self._losses: dict[str, int] = {}
        self._answered_s: dict[str, float] = {}

    @property
    def patience_s(self) -> float:
        """How long to wait for an answer before another cacher is asked for the same."""
        return self._patience_s

    def record_answer(self, owner: str, now_s: float, *, taken_s: float, size_bytes: int) -> None:
        """A cacher has answered."""
        if len(self._answered_s) >= OWNERS_MAX:
            self._answered_s.clear()  # of many that are gone
        self._answered_s[owner] = now_s
        self._taken_s.append(taken_s)
        self._hedges = min(self._hedges + HEDGES_PER_BYTE * size_bytes, HEDGES_MAX)
        self._until_reckoned -= 1
        if self._until_reckoned <= 0:
            self._until_reckoned = RECKONED_EVERY
            usual_s = sorted(self._taken_s)[int(QUANTILE * len(self._taken_s))]
            self._patience_s = min(max(PATIENCE_FACTOR * usual_s, PATIENCE_S_MIN), PATIENCE_S_MAX)

    def has_answered_since(self, owner: str, since_s: float) -> bool:
        """Whether a cacher has answered anybody of this gateway at or after a time."""
        return self._answered_s.get(owner, since_s - 1) >= since_s

    def take_hedges(self, gets: int) -> bool:
        """Whether a request may be made twice that way, at the price of so many GETs perhaps."""
        if self._hedges < gets:
            return False
        self._hedges -= gets
        return True

    def record_won(self, owner: str) -> None:
        """An owner has answered before anybody else did."""
        self._losses.pop(owner, None)

    def record_lost(self, owner: str) -> float:
        """A substitute was faster; returns for how many seconds to leave the owner alone, 0 if it may be chance."""
        if len(self._losses) >= OWNERS_MAX:
            self._losses.clear()  # of many that are gone
        losses = self._losses[owner] = self._losses.get(owner, 0) + 1
        return 0.0 if losses < LOSSES_MAX else min(SLOW_AVOIDED_S * 2 ** (losses - LOSSES_MAX), SLOW_AVOIDED_S_MAX)
