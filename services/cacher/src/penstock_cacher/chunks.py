"""Chunks, the cached parts of segments, and the mapping of byte ranges to chunks. Pure."""

from collections.abc import Callable, Iterable

import msgspec

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import (
    CHUNK_BYTES,
    STRIPE_CHUNKS,
    chunk_at,
    chunk_count,
    chunk_end,
    stripe_at,
    stripe_end,
)
from penstock.contracts.codec import Buffer
from penstock.contracts.ids import ID_BYTES, SegmentId
from penstock.contracts.messages import SegmentRead

LEVEL_MAX = 9


class Chunk(msgspec.Struct, frozen=True):
    """One chunk of a segment; equal values mean the same bytes."""

    segment_id: SegmentId
    index: int
    level: int
    size_bytes: int  # of the chunk; only the last chunk of a segment is shorter or longer

    @property
    def position(self) -> int:
        """The position of the first byte in the segment."""
        return self.index * CHUNK_BYTES


def is_readable(read: SegmentRead) -> bool:
    """Whether the range lies inside its segment, and the segment can exist."""
    segment = read.segment
    return (
        len(segment.segment_id) == ID_BYTES
        and 0 <= segment.level <= LEVEL_MAX
        and read.position >= 0
        and read.length > 0
        and read.position + read.length <= segment.size_bytes
    )


def chunks_of(read: SegmentRead) -> list[Chunk]:
    """The chunks that the range touches, in order."""
    size_bytes = read.segment.size_bytes
    first, last = chunk_at(size_bytes, read.position), chunk_at(size_bytes, read.position + read.length - 1)
    return [_chunk(read.segment, index) for index in range(first, last + 1)]


def chunks_ahead(read: SegmentRead) -> list[Chunk]:
    """The next chunks that the reader of the range probably needs, within the stripe in which the range ends."""
    size_bytes = read.segment.size_bytes
    end = read.position + read.length
    last = chunk_at(size_bytes, end - 1)
    ahead_end = min(end + max(read.ahead, 0), stripe_end(size_bytes, stripe_at(size_bytes, end - 1)))
    return [_chunk(read.segment, index) for index in range(last + 1, chunk_at(size_bytes, ahead_end - 1) + 1)]


def chunks_beside(chunk: Chunk, segment: SegmentRef) -> list[Chunk]:
    """All chunks of a chunk's stripe, including the chunk itself."""
    first = chunk.index // STRIPE_CHUNKS * STRIPE_CHUNKS
    end = min(first + STRIPE_CHUNKS, chunk_count(segment.size_bytes))
    return [_chunk(segment, index) for index in range(first, end)]


def slices_of(read: SegmentRead, data_of: Callable[[Chunk], Buffer]) -> list[Buffer]:
    """Views of the range's bytes in its chunks, in order."""
    end = read.position + read.length
    slices: list[Buffer] = []
    for chunk in chunks_of(read):
        start = max(read.position, chunk.position) - chunk.position
        stop = min(end, chunk.position + chunk.size_bytes) - chunk.position
        slices.append(memoryview(data_of(chunk))[start:stop])
    return slices


def runs_of(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """The chunks of one segment, grouped into runs of neighbours in a stripe."""
    runs: list[list[Chunk]] = []
    for chunk in sorted(chunks, key=lambda each: each.index):
        before = runs[-1][-1] if runs else None
        if before is not None and before.index + 1 == chunk.index and chunk.index % STRIPE_CHUNKS:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return runs


def _chunk(segment: SegmentRef, index: int) -> Chunk:
    size_bytes = chunk_end(segment.size_bytes, index) - index * CHUNK_BYTES
    return Chunk(segment.segment_id, index, segment.level, size_bytes)
