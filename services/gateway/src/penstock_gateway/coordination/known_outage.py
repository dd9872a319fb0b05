"""Whether the sequencers lately gave no answer. Then group requests fail after a short time, and block no heartbeat.

The answers of a connection leave in order: each request that waits for its deadline delays the heartbeats behind it.
A stock client sends up to three commits and two heartbeats in 5 s, which short deadlines allow.
"""

from typing import Protocol

import msgspec


class OutageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long an outage counts as known, and how long a request waits then."""

    known_s: float = 10.0  # afterwards one request waits for its usual deadline again: slow sequencers still answer it
    deadline_s: float = 0.5


class KnownOutage:
    """An outage of the sequencers as the group requests of one gateway see it."""

    def __init__(self, limits: OutageLimits | None = None) -> None:
        self._limits = limits or OutageLimits()
        self._until_s = 0.0

    def deadline_s(self, usual_s: float, now_s: float) -> float:
        """How long a request may wait that starts now."""
        return min(usual_s, self._limits.deadline_s) if now_s < self._until_s else usual_s

    def record_failure(self, now_s: float) -> None:
        """Record that no sequencer answered a request. A known outage is not prolonged by its short deadlines."""
        if now_s >= self._until_s:
            self._until_s = now_s + self._limits.known_s

    def record_answer(self) -> None:
        """Record that a sequencer answered: the outage is over."""
        self._until_s = 0.0


class HasKnownOutage(Protocol):
    @property
    def known_outage(self) -> KnownOutage: ...
