"""The cached chunks: old data may take up to half of the room, and leaves first when new data needs it. Pure."""

from cacher.chunks import Chunk
from cacher.lru import LruCache
from penstock.contracts.codec import Buffer

COLD_SHARE = 2  # whoever replays a log gets one part in so many, and cannot push out what everybody else reads


class ChunkCache:
    """Chunks by what they are: those of flushed segments are hot, those of compacted ones cold."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._hot: LruCache[Chunk] = LruCache(bytes_max)
        self._cold: LruCache[Chunk] = LruCache(bytes_max // COLD_SHARE)

    def __len__(self) -> int:
        return len(self._hot) + len(self._cold)

    @property
    def held_bytes(self) -> int:
        """Of all chunks, overhead counted."""
        return self._hot.held_bytes + self._cold.held_bytes

    def get(self, chunk: Chunk) -> Buffer | None:
        """The chunk's bytes, which are now the most recently used of their kind."""
        return self._of(chunk).get(chunk)

    def put(self, chunk: Chunk, data: Buffer) -> int:
        """Keep a chunk's bytes, which may not be changed any more, and return how many others had to go."""
        evicted = self._of(chunk).put(chunk, data)
        while self.held_bytes > self._bytes_max:
            # Cold chunks make room for hot ones, and hot ones only for what cold ones may take.
            (self._cold if len(self._cold) and not is_cold(chunk) else self._hot).evict()
            evicted += 1
        return evicted

    def _of(self, chunk: Chunk) -> LruCache[Chunk]:
        return self._cold if is_cold(chunk) else self._hot


def is_cold(chunk: Chunk) -> bool:
    """Whether a chunk is of a compacted segment: old data, which is read once by those who replay."""
    return chunk.level > 0
