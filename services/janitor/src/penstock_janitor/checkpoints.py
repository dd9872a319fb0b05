"""What this janitor has seen of the journal and when, by its own watch: how it counts a grace without a wall clock."""

from collections import deque

from penstock_janitor.identity import Identity
from penstock_janitor.judge import NEVER

CHECKPOINTS_MAX = 100  # that are younger than a grace


class Checkpoints:
    """How far one journal reached at moments of the monotonic clock; begins anew with another journal."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._journal: Identity | None = None
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, journal: Identity, now_s: float, sequence: int) -> None:
        """The journal reaches `sequence` now, or further."""
        if journal != self._journal:
            self._journal = journal
            self._seen.clear()
        self.watched_sequence(now_s)
        if not self._seen or now_s - self._seen[-1][0] >= self._grace_s / CHECKPOINTS_MAX:
            self._seen.append((now_s, sequence))

    def watched_sequence(self, now_s: float) -> int:
        """Up to here the journal reached a grace ago or longer; `NEVER` if we do not know."""
        while len(self._seen) > 1 and self._is_old(self._seen[1], now_s):
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._is_old(self._seen[0], now_s) else NEVER

    def _is_old(self, seen: tuple[float, int], now_s: float) -> bool:
        return now_s - seen[0] >= self._grace_s
