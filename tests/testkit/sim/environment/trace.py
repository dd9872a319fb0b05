"""The trace of a run: a running hash over all lines of events, and the last lines or all of them."""

import hashlib
from collections import deque

LINES_HASHED = 200  # in one step
LINES_KEPT = 400  # for the report of a failed run; `make sim` keeps all


class Trace:
    """Lines with their times; equal traces have equal hashes."""

    def __init__(self, keep_all: bool = False) -> None:
        self.lines: deque[str] = deque(maxlen=None if keep_all else LINES_KEPT)
        self._unhashed: list[str] = []
        self._hash = hashlib.blake2b(digest_size=16)

    def record(self, now_s: float, text: str) -> None:
        """Add a line."""
        line = f"{now_s:10.4f} {text}"
        self.lines.append(line)
        unhashed = self._unhashed
        unhashed.append(line)
        if len(unhashed) == LINES_HASHED:
            self._hash_pending()

    def _hash_pending(self) -> None:
        if self._unhashed:
            self._unhashed.append("")  # for the end of the last line
            self._hash.update("\n".join(self._unhashed).encode())
            self._unhashed.clear()

    @property
    def digest(self) -> str:
        """The hash over all lines so far."""
        self._hash_pending()
        return self._hash.hexdigest()
