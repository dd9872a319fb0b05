"""A journal in memory with the guarantees of JetStream, shared by several handles, with failures on demand."""

import asyncio
import collections
from collections.abc import AsyncIterator

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.journal import JournalEntry, JournalGap, JournalInfo, JournalLost

ENTRY_BYTES_MAX = 8 * 1024 * 1024 - 4096
DUPLICATE_WINDOW_ENTRIES = 10_000  # instead of the server's window of two minutes
GROUP_ENTRIES_MAX = 256


class MemoryJournalStore:
    """The stream itself, which a real server keeps."""

    def __init__(self, created: str = "2026-01-01T00:00:00Z") -> None:
        self.created = created
        self.exists = True
        self.is_available = True
        self.first_sequence = 1
        self.last_sequence = 0
        self._entries: dict[int, bytes] = {}
        self._ids: collections.OrderedDict[str, int] = collections.OrderedDict()
        self._failures: collections.deque[bool] = collections.deque()
        self._changed = asyncio.Event()

    def fail_next_append(self, *, with_effect: bool, times: int = 1) -> None:
        """Let the next appends raise `Unavailable`; with effect, the entry is stored nevertheless."""
        self._failures.extend([with_effect] * times)

    def lose(self) -> None:
        """Remove the stream."""
        self.exists = False
        self.notify()

    def make_again(self, created: str = "2026-02-02T00:00:00Z") -> None:
        """Replace the stream by a new, empty stream of the same name."""
        self._entries.clear()
        self._ids.clear()
        self.created, self.exists, self.first_sequence, self.last_sequence = created, True, 1, 0
        self.notify()

    def drop(self, sequence: int) -> None:
        """Remove one entry, as damage does."""
        del self._entries[sequence]

    def cut_after(self, last_sequence: int) -> None:
        """Remove all entries after this one, as an older backup does."""
        for sequence in range(last_sequence + 1, self.last_sequence + 1):
            self._entries.pop(sequence, None)
        self._ids.clear()
        self.last_sequence = last_sequence
        self.notify()

    def replace(self, sequence: int, data: bytes) -> None:
        """Replace the bytes of an entry, as damage does."""
        self._entries[sequence] = data

    def purge(self, keep_from: int) -> None:
        """Remove all entries before the sequence, as trimming does."""
        for sequence in range(self.first_sequence, keep_from):
            self._entries.pop(sequence, None)
        self.first_sequence = max(self.first_sequence, keep_from)

    def set_available(self, available: bool) -> None:
        """Let the server answer, or not."""
        self.is_available = available
        self.notify()

    def inject(self, data: bytes) -> int:
        """Append bytes that no journal handle would append."""
        return self.store_entry(f"injected-{self.last_sequence + 1}", data)

    def entry(self, sequence: int) -> bytes | None:
        """An entry's bytes, None if it is not there."""
        return self._entries.get(sequence)

    def append(self, entry_id: str, data: bytes) -> int:
        """Store an entry, or fail as `fail_next_append` demands."""
        if self._failures:
            if self._failures.popleft():
                self.store_entry(entry_id, data)
            raise Unavailable("no acknowledgement came in time")
        return self.store_entry(entry_id, data)

    def store_entry(self, entry_id: str, data: bytes) -> int:
        """Store an entry, unless its id is stored already, and return its sequence."""
        if entry_id in self._ids:
            return self._ids[entry_id]
        self.last_sequence += 1
        self._entries[self.last_sequence] = data
        self._ids[entry_id] = self.last_sequence
        if len(self._ids) > DUPLICATE_WINDOW_ENTRIES:
            self._ids.popitem(last=False)
        self.notify()
        return self.last_sequence

    def notify(self) -> None:
        """Wake readers after a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Return after the next change."""
        await self._changed.wait()


class MemoryJournal:
    """`Journal`: one process' handle on the store."""

    def __init__(self, store: MemoryJournalStore) -> None:
        self._store = store
        self._created = ""
        self._last_sequence = 0

    @property
    def entry_bytes_max(self) -> int:
        return ENTRY_BYTES_MAX

    async def describe(self) -> JournalInfo:
        await asyncio.sleep(0)
        return self._look()

    async def last_sequence(self) -> int:
        return (await self.describe()).last_sequence

    def _look(self) -> JournalInfo:
        """The answer of `describe`, from the stream itself."""
        store = self._store
        if not store.is_available:
            raise Unavailable("the journal does not answer")
        if not store.exists:
            raise JournalLost("there is no journal")
        self._created = self._created or store.created
        if store.created != self._created:
            raise JournalLost(f"the journal was created again: at {store.created}, seen first at {self._created}")
        if store.last_sequence < self._last_sequence:
            raise JournalLost(f"the journal went back to {store.last_sequence}, it was at {self._last_sequence}")
        self._last_sequence = store.last_sequence
        return JournalInfo(store.first_sequence, store.last_sequence, store.created, 1)

    async def append(self, entry_id: str, data: bytes) -> int:
        if len(data) > self.entry_bytes_max:
            raise Invalid(f"journal entry of {len(data)} bytes is over the limit of {self.entry_bytes_max}")
        await asyncio.sleep(0)
        if not self._store.is_available:
            raise Unavailable("the journal does not answer")
        if not self._store.exists:
            raise JournalLost("the journal is gone")
        sequence = self._store.append(entry_id, data)
        self._last_sequence = max(self._last_sequence, sequence)
        return sequence

    async def purge(self, up_to: int) -> None:
        info = await self.describe()
        if up_to > info.last_sequence:
            raise Invalid(f"cannot purge the journal up to entry {up_to}: it ends at {info.last_sequence}")
        self._store.purge(up_to + 1)

    async def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        expected = after + 1
        while True:
            try:
                group = self._take(expected)
            except Unavailable:
                await self._store.wait_for_change()
                continue
            if group:
                expected = group[-1].sequence + 1
                yield group
            else:
                await self._store.wait_for_change()

    def _take(self, expected: int) -> list[JournalEntry]:
        """The entries from one on, at most one group."""
        info = self._look()
        if info.last_sequence < expected - 1:
            raise JournalLost(f"the journal ends at {info.last_sequence}, but entry {expected - 1} was there already")
        if info.first_sequence > expected:
            raise JournalGap(f"journal entries {expected} to {info.first_sequence - 1} are gone")
        group: list[JournalEntry] = []
        for sequence in range(expected, min(info.last_sequence, expected + GROUP_ENTRIES_MAX - 1) + 1):
            data = self._store.entry(sequence)
            if data is None and not group:
                raise JournalGap(f"journal entry {sequence} is gone")
            if data is None:
                break
            group.append(JournalEntry(sequence, data))
        return group
