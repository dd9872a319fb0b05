"""A byte-bounded cache: the least recently used goes first. It knows no clock and does no I/O."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from penstock.contracts.codec import Buffer

Key = TypeVar("Key", bound=Hashable)

ENTRY_OVERHEAD_BYTES = 512  # key, view and table entry, so that many short chunks cannot outgrow the bound


class LruCache(Generic[Key]):
    """Buffers by key, with never more than `bytes_max` in all, overhead counted."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[Key, Buffer] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> Buffer | None:
        """The buffer under `key`, which is now the most recently used."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Key, data: Buffer) -> int:
        """Keep `data`, which may not be changed any more, and return how many others had to go.

        What is larger than the whole cache is not kept.
        """
        self._drop(key)
        weight_bytes = len(data) + ENTRY_OVERHEAD_BYTES
        if weight_bytes > self._bytes_max:
            return 0
        evicted = 0
        while self.held_bytes + weight_bytes > self._bytes_max:
            self.evict()
            evicted += 1
        self._entries[key] = data
        self.held_bytes += weight_bytes
        return evicted

    def evict(self) -> None:
        """Let the least recently used go."""
        self._drop(next(iter(self._entries)))

    def _drop(self, key: Key) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.held_bytes -= len(found) + ENTRY_OVERHEAD_BYTES
