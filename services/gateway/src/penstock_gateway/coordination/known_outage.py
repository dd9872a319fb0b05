"""Whether the sequencers lately gave no answer. Then most group requests fail at once, and block no heartbeat.

The answers of a connection leave in order: each request that waits for its deadline delays the heartbeats behind it.
A client repeats its failed commits, so that even short waits add up. Only one request at a time asks the sequencers.
"""

from typing import Protocol

import msgspec

from penstock.contracts.errors import Unavailable


class OutageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long an outage counts as known, and how often and how long a request waits then."""

    known_s: float = 10.0  # afterwards one request waits for its usual deadline again: slow sequencers still answer it
    deadline_s: float = 0.5
    pause_s: float = 0.5  # between such requests; the others fail at once


class KnownOutage:
    """An outage of the sequencers as the group requests of one gateway see it."""

    def __init__(self, limits: OutageLimits | None = None) -> None:
        self._limits = limits or OutageLimits()
        self._until_s = 0.0
        self._next_request_s = 0.0

    def deadline_s(self, usual_s: float, now_s: float) -> float:
        """How long a request may wait that starts now; `Unavailable` if it should not ask the sequencers."""
        if now_s >= self._until_s:
            return usual_s
        if now_s < self._next_request_s:
            raise Unavailable("no sequencer answered a moment ago")
        self._next_request_s = now_s + self._limits.deadline_s + self._limits.pause_s
        return min(usual_s, self._limits.deadline_s)

    def record_failure(self, now_s: float) -> None:
        """Record that no sequencer answered a request. A known outage is not prolonged by its short deadlines."""
        if now_s >= self._until_s:
            self._until_s = now_s + self._limits.known_s
            self._next_request_s = now_s + self._limits.pause_s

    def record_answer(self) -> None:
        """Record that a sequencer answered: the outage is over."""
        self._until_s = 0.0


class HasKnownOutage(Protocol):
    @property
    def known_outage(self) -> KnownOutage: ...
