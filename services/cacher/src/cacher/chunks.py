"""The aligned 4 MiB chunks that segments are cached in, and which of them make up a range. Pure."""

from collections.abc import Callable

import msgspec

from penstock.contracts.batches import SegmentRef
from penstock.contracts.codec import Buffer
from penstock.contracts.ids import ID_BYTES, SegmentId
from penstock.contracts.messages import SegmentRead

CHUNK_BYTES = 4 * 1024 * 1024  # DESIGN section 6; half of the bus's largest message, so one chunk is one answer
LEVEL_MAX = 9


class Chunk(msgspec.Struct, frozen=True):
    """One chunk of a segment; equal for everybody who means the same bytes."""

    segment_id: SegmentId
    index: int
    level: int
    size_bytes: int  # of the chunk; the segment's last one is shorter

    @property
    def position(self) -> int:
        """Bytes from the start of the segment."""
        return self.index * CHUNK_BYTES


def is_readable(read: SegmentRead) -> bool:
    """Whether the range lies inside of a segment that can exist."""
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
    first = read.position // CHUNK_BYTES
    last = (read.position + read.length - 1) // CHUNK_BYTES
    return [_chunk(read.segment, index) for index in range(first, last + 1)]


def slices_of(read: SegmentRead, data_of: Callable[[Chunk], Buffer]) -> list[Buffer]:
    """Views of the range's bytes in its chunks, in order."""
    end = read.position + read.length
    slices: list[Buffer] = []
    for chunk in chunks_of(read):
        start = max(read.position, chunk.position) - chunk.position
        stop = min(end, chunk.position + chunk.size_bytes) - chunk.position
        slices.append(memoryview(data_of(chunk))[start:stop])
    return slices


def _chunk(segment: SegmentRef, index: int) -> Chunk:
    size_bytes = min(CHUNK_BYTES, segment.size_bytes - index * CHUNK_BYTES)
    return Chunk(segment.segment_id, index, segment.level, size_bytes)
