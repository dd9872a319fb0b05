"""The running hash over all entries, and the check that other replicas' entries build on the same past (pure)."""

from collections import deque
from collections.abc import Sequence

from penstock.contracts.entries import GENESIS_HASH, Entry, next_hash
from penstock.contracts.errors import Corrupt

# How far an author may be behind its own entry and still be checked: seconds of the fullest journal, in 4 MiB.
HASHES_MAX = 65_536


class HashChain:
    """A replica's place in the journal: `sequence` of the last applied entry, and `hash` over all entries up to it."""

    def __init__(self, hashes_max: int = HASHES_MAX) -> None:
        self.sequence = 0
        self.hash = GENESIS_HASH
        self._recent: deque[bytes] = deque([GENESIS_HASH], hashes_max)  # the last one is of `sequence`

    def restore(self, sequence: int, hashes: Sequence[bytes]) -> None:
        """Start at a snapshot: `hashes` follow the last entries up to `sequence`, which is included."""
        assert sequence > self.sequence, f"entry {self.sequence} is applied, so it is too late to start at {sequence}"
        self.sequence = sequence
        self.hash = hashes[-1]
        self._recent.clear()
        self._recent.extend(hashes)

    def newest_hashes(self, count: int) -> list[bytes]:
        """The newest hashes, at most `count`, oldest first."""
        start = max(len(self._recent) - count, 0)
        return [self._recent[place] for place in range(start, len(self._recent))]

    def ends_with(self, data: bytes) -> bool:
        """Whether the entry at `sequence` has these bytes; also true if the hash before it is unknown."""
        return len(self._recent) < 2 or next_hash(self._recent[-2], data) == self.hash

    @property
    def earliest_sequence(self) -> int:
        """The lowest sequence whose hash is still known."""
        return self.sequence - len(self._recent) + 1

    def hash_at(self, sequence: int) -> bytes | None:
        """The running hash after the entry `sequence`; None if it is unknown."""
        if not self.earliest_sequence <= sequence <= self.sequence:
            return None
        return self._recent[sequence - self.sequence - 1]

    def check(self, entry: Entry) -> bool:
        """Whether the next entry was written on the same past; `Corrupt` if it was written on another.

        False if that is unknown, because its author was too far behind.
        """
        behind = self.sequence - entry.author_sequence
        if behind < 0:
            raise Corrupt(
                f"entry {self.sequence + 1} by {entry.author} builds on entry {entry.author_sequence}, "
                f"which did not exist yet"
            )
        if behind >= len(self._recent):
            return False
        ours = self._recent[-1 - behind]
        if ours != entry.author_hash:
            raise Corrupt(
                f"entry {self.sequence + 1} by {entry.author} builds on another past: "
                f"hash {entry.author_hash.hex()} at entry {entry.author_sequence}, here {ours.hex()}"
            )
        return True

    def advance(self, data: bytes) -> None:
        """Add the next entry, with these bytes, to the past."""
        self.hash = next_hash(self.hash, data)
        self.sequence += 1
        self._recent.append(self.hash)
