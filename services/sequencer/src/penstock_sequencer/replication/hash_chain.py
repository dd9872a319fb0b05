"""The running hash over all entries, and the check that other replicas' entries build on the same past (pure)."""

from collections.abc import Sequence

from penstock.contracts.entries import GENESIS_HASH, HASH_BYTES, Entry, next_hash
from penstock.contracts.errors import Corrupt

# How far an author may be behind its own entry and still be checked: seconds of the fullest journal, in 1 MiB.
HASHES_MAX = 65_536


class HashChain:
    """A replica's place in the journal: `sequence` of the last applied entry, and `hash` over all entries up to it.

    The newest hashes are in one buffer, which never grows. Objects for each would lie between those that requests make
    and free. Then the process could give little memory back.
    """

    def __init__(self, hashes_max: int = HASHES_MAX) -> None:
        self.sequence = 0
        self.hash = GENESIS_HASH
        self._recent = bytearray(hashes_max * HASH_BYTES)  # of an entry, at its sequence modulo `hashes_max`
        self._hashes_max = hashes_max
        self._known = 0  # how many hashes there are, the last one of `sequence`
        self._append(GENESIS_HASH)

    def restore(self, sequence: int, hashes: Sequence[bytes]) -> None:
        """Start at a snapshot: `hashes` follow the last entries up to `sequence`, which is included."""
        assert sequence > self.sequence, f"entry {self.sequence} is applied, so it is too late to start at {sequence}"
        self._known = 0
        for self.sequence, self.hash in enumerate(hashes, sequence - len(hashes) + 1):
            self._append(self.hash)

    def newest_hashes(self, count: int) -> list[bytes]:
        """The newest hashes, at most `count`, oldest first."""
        first = max(self.earliest_sequence, self.sequence - count + 1)
        return [self._hash_of(sequence) for sequence in range(first, self.sequence + 1)]

    def ends_with(self, data: bytes) -> bool:
        """Whether the entry at `sequence` has these bytes; also true if the hash before it is unknown."""
        return self._known < 2 or next_hash(self._hash_of(self.sequence - 1), data) == self.hash

    @property
    def earliest_sequence(self) -> int:
        """The lowest sequence whose hash is still known."""
        return self.sequence - self._known + 1

    def hash_at(self, sequence: int) -> bytes | None:
        """The running hash after the entry `sequence`; None if it is unknown."""
        return self._hash_of(sequence) if self.earliest_sequence <= sequence <= self.sequence else None

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
        if behind >= self._known:
            return False
        ours = self._hash_of(self.sequence - behind)
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
        self._append(self.hash)

    def _append(self, newest: bytes) -> None:
        """Keep the hash of the entry `sequence`."""
        place = self.sequence % self._hashes_max * HASH_BYTES
        self._recent[place : place + HASH_BYTES] = newest
        self._known = min(self._known + 1, self._hashes_max)

    def _hash_of(self, sequence: int) -> bytes:
        place = sequence % self._hashes_max * HASH_BYTES
        return bytes(self._recent[place : place + HASH_BYTES])
