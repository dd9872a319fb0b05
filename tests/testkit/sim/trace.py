"""What happened in a run, line by line: a running hash over all of it, and the lines if they are wanted."""

import hashlib
from collections import deque

LINES_KEPT = 400  # shown when a run fails; `make sim` keeps all


class Trace:
    """Lines with their time; equal traces have equal hashes."""

    def __init__(self, keep_all: bool = False) -> None:
        self.lines: deque[str] = deque(maxlen=None if keep_all else LINES_KEPT)
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, now_s: float, text: str) -> None:
        """Add a line."""
        line = f"{now_s:10.4f} {text}"
        self.count += 1
        self._hash.update(line.encode())
        self.lines.append(line)

    @property
    def digest(self) -> str:
        """The hash over all lines so far."""
        return self._hash.hexdigest()
