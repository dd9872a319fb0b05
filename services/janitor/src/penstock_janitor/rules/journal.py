"""Facts about the journal: its identity, when it was rebuilt, and the sequence it reached a grace period ago.

With that sequence a janitor counts the grace period without a wall clock.
"""

from collections import deque
from datetime import UTC, datetime

import msgspec

from penstock.contracts.errors import Corrupt

NEVER = -1  # a sequence or time before all others
# A rebuilt journal begins at a higher sequence than this. No other journal reaches it within weeks.
REBUILT_SEQUENCE_MIN = 1_000_000_000
CHECKPOINTS_MAX = 100  # younger than a grace period


class Identity(msgspec.Struct, frozen=True):
    """A journal: its stream, and when the stream was created, as the server writes it."""

    stream: str
    created: str


def rebuilt_ms(journal: Identity, sequence: int) -> int:
    """When a journal that has reached `sequence` was rebuilt from the store; `NEVER` if it was not."""
    if sequence < REBUILT_SEQUENCE_MIN:
        return NEVER
    try:
        created = datetime.fromisoformat(journal.created)
    except ValueError as error:
        raise Corrupt(f"the creation time of journal {journal.stream} is not a time: {error}") from error
    return int((created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp() * 1000)


class Checkpoints:
    """The sequences that one journal reached, by times of the monotonic clock. Another journal starts them anew."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._journal: Identity | None = None
        self._seen: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        """The number of checkpoints in memory."""
        return len(self._seen)

    def record(self, journal: Identity, now_s: float, sequence: int) -> None:
        """Record that the journal has reached `sequence` now."""
        if journal != self._journal:
            self._journal = journal
            self._seen.clear()
        self.watched_sequence(now_s)
        if not self._seen or now_s - self._seen[-1][0] >= self._grace_s / CHECKPOINTS_MAX:
            self._seen.append((now_s, sequence))

    def watched_sequence(self, now_s: float) -> int:
        """A sequence that the journal had reached a grace period ago; `NEVER` if none is known."""
        while len(self._seen) > 1 and self._is_old(self._seen[1], now_s):
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._is_old(self._seen[0], now_s) else NEVER

    def _is_old(self, seen: tuple[float, int], now_s: float) -> bool:
        return now_s - seen[0] >= self._grace_s
