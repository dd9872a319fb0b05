"""Selects the entries of the next archive object, from those that were read and are not archived yet. Pure."""

from collections import deque

import msgspec

from penstock.contracts.commands import HOUSEKEEPING
from penstock.contracts.entries import decode_entry, is_move_mark, next_hash
from penstock.contracts.errors import Corrupt
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.journal import JournalEntry
from penstock_sequencer.storage.archive_format import ENTRIES_BYTES_MAX, Archive

ENTRY_OVERHEAD_BYTES = 100  # of a small entry in memory


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the custodian archives, and how many bytes at once."""

    interval_s: float = 5.0  # the entries of this time are lost if the journal is lost
    idle_interval_s: float = 60.0  # for entries that only record the time
    retry_s: float = 5.0
    entries_bytes_max: int = ENTRIES_BYTES_MAX  # of one object; a larger entry is alone in its object
    backlog_bytes_max: int = 2 * ENTRIES_BYTES_MAX  # read and not stored yet; reading pauses beyond it
    objects_tried_max: int = 5  # from the archive's end backwards, to find one that is not damaged


ARCHIVE_LIMITS = ArchiveLimits()


class Place(msgspec.Struct, frozen=True):
    """A place in the journal: after an entry, with the running hash there."""

    sequence: int
    hash: bytes


class Backlog:
    """Entries that were read from the journal and are not in the archive yet."""

    def __init__(
        self, place: Place, *, limits: ArchiveLimits = ARCHIVE_LIMITS, known_level: int = NEWEST_LEVEL
    ) -> None:
        self.size_bytes = 0
        self._limits = limits
        self._known_level = known_level
        self._has_work = False  # whether there are commands other than housekeeping
        self._place = place  # before the first entry
        self._entries: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def sequence(self) -> int:
        """The sequence of the newest entry that is here or in the archive."""
        return self._place.sequence + len(self._entries)

    @property
    def is_object_full(self) -> bool:
        """Whether there is enough for a full object."""
        return self.size_bytes >= self._limits.entries_bytes_max

    @property
    def is_full(self) -> bool:
        """Whether no more entries may be read before some are archived."""
        return self.size_bytes >= self._limits.backlog_bytes_max

    def is_due(self, idle_s: float) -> bool:
        """Whether to archive now, `idle_s` after the last time."""
        if not self._entries:
            return False
        return self._has_work or idle_s >= self._limits.idle_interval_s or self.is_object_full

    def add(self, item: JournalEntry) -> None:
        """Add the next entry; `Corrupt` if its sequence is not the next one, or if it cannot be read.

        `JournalMoved` at the mark of a moved journal: the new journal has another entry in its place.
        """
        due = self.sequence + 1
        if item.sequence != due:
            raise Corrupt(f"the archive needs entry {due} next, but the journal sent entry {item.sequence}")
        if not self._has_work or is_move_mark(item.data):
            self._has_work = self._is_work(item.data)
        self._entries.append(item.data)
        self.size_bytes += _size_bytes(item.data)

    def fragment(self) -> Archive:
        """The oldest entries that fit one object; they stay until `drop`."""
        taken: list[bytes] = []
        size_bytes = 0
        for data in self._entries:
            size_bytes += _size_bytes(data)
            if taken and size_bytes > self._limits.entries_bytes_max:
                break
            taken.append(data)
        return Archive(self._place.sequence + 1, self._place.hash, taken)

    def drop(self, fragment: Archive) -> None:
        """Remove the entries of the last result of `fragment`, which are archived now."""
        running = fragment.hash_before
        for data in fragment.entries:
            self._entries.popleft()
            self.size_bytes -= _size_bytes(data)
            running = next_hash(running, data)
        self._place = Place(fragment.last, running)
        if not self._entries:
            self._has_work = False

    def _is_work(self, data: bytes) -> bool:
        requests = decode_entry(data, self._known_level).requests
        return any(not isinstance(command, HOUSEKEEPING) for request in requests for command in request)


def _size_bytes(data: bytes) -> int:
    return len(data) + ENTRY_OVERHEAD_BYTES
