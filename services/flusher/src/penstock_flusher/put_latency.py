"""How long the store takes to put what is small: when to put it once more, and how often that may be. Pure."""

from collections import deque

SAMPLES = 128  # the puts looked back on
SAMPLES_MIN = 16  # with fewer nothing is known
RECKONED_EVERY = 8  # puts, as sorting them costs something
QUANTILE = 0.9
PATIENCE_FACTOR = 1.5  # a put that takes so much longer than most others is not waited for alone
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.02, 1.0
HEDGES_MAX = 4.0  # at once, of those that were not used: where everything is slow they help nobody


class PutPace:
    """Learns from every put; `share` of them may be made twice."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._taken_s: deque[float] = deque(maxlen=SAMPLES)
        self._until_reckoned = SAMPLES_MIN
        self._patience_s: float | None = None
        self._hedges = 0.0

    @property
    def patience_s(self) -> float | None:
        """How long to wait for a put before the same is put once more; None while that is not known."""
        return self._patience_s

    def record_put(self, taken_s: float) -> None:
        """A put has ended after so long, or was overtaken by its hedge then."""
        self._taken_s.append(taken_s)
        self._hedges = min(self._hedges + self._share, HEDGES_MAX)
        self._until_reckoned -= 1
        if self._until_reckoned <= 0:
            self._until_reckoned = RECKONED_EVERY
            usual_s = sorted(self._taken_s)[int(QUANTILE * len(self._taken_s))]
            self._patience_s = min(max(PATIENCE_FACTOR * usual_s, PATIENCE_S_MIN), PATIENCE_S_MAX)

    def take_hedge(self) -> bool:
        """Whether a put may be made twice."""
        if self._hedges < 1:
            return False
        self._hedges -= 1
        return True
