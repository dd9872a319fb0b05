"""The cache of chunks: cold data may use up to half of the memory, and is evicted first for new data. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from penstock.contracts.codec import Buffer
from penstock_cacher.chunks import Chunk

# Cold chunks may use 1/COLD_SHARE of the memory. So catch-up reads cannot evict the data of tailing consumers.
COLD_SHARE = 2
ENTRY_OVERHEAD_BYTES = 512  # key, view and table entry, so that many short chunks cannot exceed the limit

Key = TypeVar("Key", bound=Hashable)


class LruCache(Generic[Key]):
    """Buffers by key, with at most `bytes_max` in all, overhead included."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[Key, Buffer] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> Buffer | None:
        """The buffer of `key`, which becomes the most recently used."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Key, data: Buffer) -> int:
        """Keep `data`, and return how many other buffers were evicted. The caller must not change `data` later.

        A buffer larger than the whole cache is not kept.
        """
        self._remove(key)
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
        """Remove the least recently used buffer."""
        self._remove(next(iter(self._entries)))

    def _remove(self, key: Key) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.held_bytes -= len(found) + ENTRY_OVERHEAD_BYTES


class ChunkCache:
    """Chunks in two classes: cold chunks were loaded for catch-up reads, hot ones for tailing reads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._hot: LruCache[Chunk] = LruCache(bytes_max)
        self._cold: LruCache[Chunk] = LruCache(bytes_max // COLD_SHARE)

    def __len__(self) -> int:
        return len(self._hot) + len(self._cold)

    def __contains__(self, chunk: Chunk) -> bool:
        return chunk in self._hot or chunk in self._cold

    @property
    def held_bytes(self) -> int:
        """The bytes of all chunks, overhead included."""
        return self._hot.held_bytes + self._cold.held_bytes

    def get(self, chunk: Chunk) -> Buffer | None:
        """The chunk's bytes, which become the most recently used of their class."""
        found = self._hot.get(chunk)
        return self._cold.get(chunk) if found is None else found

    def put(self, chunk: Chunk, data: Buffer, *, is_cold: bool) -> int:
        """Keep a chunk's bytes, and return how many other chunks were evicted.

        The caller must not change the bytes later.
        """
        evicted = (self._cold if is_cold else self._hot).put(chunk, data)
        while self.held_bytes > self._bytes_max:
            # A hot chunk evicts cold ones first. A cold chunk evicts hot ones only within the share of cold chunks.
            (self._cold if len(self._cold) and not is_cold else self._hot).evict()
            evicted += 1
        return evicted
