"""The late copies that ADR 0024 allows: a gateway confirmed the request, and was killed or paused before the commit.

Only a request that went to this gateway before the confirmation may be stored behind newer records. A stopped or
isolated gateway excuses nothing. Below `COMMIT_LEASE_LEVEL` a confirmation has no end: every confirmed request may be
stored late. An agent confirms the requests of its own flusher by calls that the bus does not show. So each request of
an agent counts as confirmed when it was sent.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from penstock.contracts.codec import decode
from penstock.contracts.commands import Command, CommitSegment, Outcome, SegmentCommitted
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import COMMIT_LEASE_LEVEL
from penstock.contracts.messages import ConfirmReply
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.environment.process import AGENT

LATE_S_MAX = 15.0  # a lease of 2 s by the machine's clock, which stands while the journal is stalled
GATEWAY = "gateway-"


class Attempt(NamedTuple):
    """A request that a client sent to a gateway."""

    gateway: str
    sent_s: float


class Stored(NamedTuple):
    """The first storage of a batch."""

    at_s: float
    has_leases: bool  # whether the state machine judged leases


class LateCopies:
    """Records confirmations, kills and pauses of gateways, and commits, with their times."""

    def __init__(self, oracle: Oracle, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._oracle = oracle
        self._confirmed: dict[str, list[float]] = defaultdict(list)  # by life of a gateway
        self._halted: dict[str, list[tuple[float, str]]] = defaultdict(list)  # by gateway: time and life
        self._stored: dict[tuple[TopicId, int, int], Stored] = {}  # by topic, partition and base offset
        oracle.on_applied.append(self._applied)

    def answered(self, sender: str, data: bytes) -> None:
        """Take an answer on the bus; gateways answer only questions whether requests may be committed."""
        if sender.startswith(GATEWAY) and any(decode(data, ConfirmReply).leases_ms):
            self._confirmed[sender].append(self.now_s())

    def halted(self, process: str, life: str) -> None:
        """Take the end of a process by SIGKILL, or the begin of a pause by SIGSTOP."""
        if process.startswith(GATEWAY) or _is_agent(process):
            self._halted[process].append((self.now_s(), life))

    def _applied(self, commands: list[Command], outcomes: list[Outcome]) -> None:
        stored = Stored(self.now_s(), self._oracle.state.level >= COMMIT_LEASE_LEVEL)
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, CommitSegment) and isinstance(outcome, SegmentCommitted):
                for run, results in zip(command.runs, outcome.runs, strict=True):
                    for result in results:
                        self._stored.setdefault((run.topic_id, run.partition, result.base_offset), stored)

    def allows(self, topic_id: TopicId, base_offset: int, attempts: list[Attempt]) -> bool:
        """Whether one of the attempts was on its way, confirmed, when its gateway was killed or paused."""
        stored = self._stored[topic_id, 0, base_offset]
        is_late_copy = self._is_late_copy if stored.has_leases else self._is_copy_without_lease
        is_allowed = any(is_late_copy(attempt, stored.at_s) for attempt in attempts)
        if is_allowed:
            self._oracle.observed("late copies", f"a gateway had confirmed the one at {base_offset}")
        return is_allowed

    def _is_late_copy(self, attempt: Attempt, stored_s: float) -> bool:
        return any(
            attempt.sent_s <= halted_s < stored_s <= halted_s + LATE_S_MAX
            and (
                _is_agent(attempt.gateway) or any(attempt.sent_s <= each <= halted_s for each in self._confirmed[life])
            )
            for halted_s, life in self._halted[attempt.gateway]
        )

    def _is_copy_without_lease(self, attempt: Attempt, stored_s: float) -> bool:
        lives = [times for life, times in self._confirmed.items() if life.startswith(f"{attempt.gateway}-")]
        return _is_agent(attempt.gateway) or any(attempt.sent_s <= each < stored_s for times in lives for each in times)


def _is_agent(process: str) -> bool:
    return process.startswith(f"{AGENT}-")
