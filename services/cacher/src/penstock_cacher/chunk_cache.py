"""The cached chunks: old data may take up to half of the room, and leaves first when new data needs it. Pure."""

from penstock.contracts.codec import Buffer
from penstock_cacher.chunks import Chunk
from penstock_cacher.lru import LruCache

COLD_SHARE = 2  # whoever replays a log gets one part in so many, and cannot push out what everybody else reads


class ChunkCache:
    """Chunks by what they were when they came: those of history are cold, the others hot."""

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
        """Of all chunks, overhead counted."""
        return self._hot.held_bytes + self._cold.held_bytes

    def get(self, chunk: Chunk) -> Buffer | None:
        """The chunk's bytes, which are now the most recently used of their kind."""
        found = self._hot.get(chunk)
        return self._cold.get(chunk) if found is None else found

    def put(self, chunk: Chunk, data: Buffer, *, is_cold: bool) -> int:
        """Keep a chunk's bytes, which may not be changed any more, and return how many others had to go."""
        evicted = (self._cold if is_cold else self._hot).put(chunk, data)
        while self.held_bytes > self._bytes_max:
            # Cold chunks make room for hot ones, and hot ones only for what cold ones may take.
            (self._cold if len(self._cold) and not is_cold else self._hot).evict()
            evicted += 1
        return evicted
