"""Facts about the journal: which one it is, when it was rebuilt, and how far it reached a grace period ago.

The last is how a janitor counts the grace period without a wall clock.
"""

from collections import deque
from datetime import UTC, datetime

import msgspec

from penstock.contracts.errors import Corrupt

NEVER = -1  # as a sequence or a time: before everything that may be deleted
# A rebuild begins its journal at a higher sequence. No other journal gets there within weeks.
REBUILT_SEQUENCE_MIN = 1_000_000_000
CHECKPOINTS_MAX = 100  # that are younger than a grace period


class Identity(msgspec.Struct, frozen=True):
    """A journal: its stream, and when the stream was created, as the server writes it."""

    stream: str
    created: str


def rebuilt_ms(journal: Identity, sequence: int) -> int:
    """When a journal that has reached `sequence` was rebuilt from the store; `NEVER` if it was not."""
    if sequence < REBUILT_SEQUENCE_MIN:
        return NEVER
    try:
        made = datetime.fromisoformat(journal.created)
    except ValueError as error:
        raise Corrupt(f"nobody knows when the journal {journal.stream} was made: {error}") from error
    return int((made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp() * 1000)


class Checkpoints:
    """How far one journal reached at moments of the monotonic clock; starts again with another journal."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._journal: Identity | None = None
        self._seen: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        """The number of checkpoints in memory."""
        return len(self._seen)

    def record(self, journal: Identity, now_s: float, sequence: int) -> None:
        """The journal reaches `sequence` now, or further."""
        if journal != self._journal:
            self._journal = journal
            self._seen.clear()
        self.watched_sequence(now_s)
        if not self._seen or now_s - self._seen[-1][0] >= self._grace_s / CHECKPOINTS_MAX:
            self._seen.append((now_s, sequence))

    def watched_sequence(self, now_s: float) -> int:
        """The journal reached this sequence a grace period ago or earlier; `NEVER` if that is not known."""
        while len(self._seen) > 1 and self._is_old(self._seen[1], now_s):
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._is_old(self._seen[0], now_s) else NEVER

    def _is_old(self, seen: tuple[float, int], now_s: float) -> bool:
        return now_s - seen[0] >= self._grace_s
