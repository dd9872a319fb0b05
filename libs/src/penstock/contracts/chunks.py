"""Positions of chunks and stripes in a segment: the units of caching and of ownership in a zone. Pure.

Gateways and cachers must use the same chunk borders. If they differ, for example during a rolling upgrade, a chunk is
loaded twice.
"""

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import segment_born_ms

CHUNK_BYTES = 4 * 1024 * 1024  # docs/design.md, section 6
# A full segment is a little longer than the flusher's limit. The remainder belongs to the chunk before it; otherwise
# each segment would cost one more GET. A chunk with its remainder still fits into one message of the bus (8 MiB).
SPILL_BYTES_MAX = CHUNK_BYTES // 4
STRIPE_CHUNKS = 4  # chunks of a compacted segment with one owner, which a sequential reader gets with one GET
RECENT_MS = 60_000  # tailing reads, and reads after a short pause, need segments of at most this age


def chunk_count(size_bytes: int) -> int:
    """The number of chunks of a segment, at least one."""
    whole, rest = divmod(size_bytes, CHUNK_BYTES)
    return max(whole + (rest > SPILL_BYTES_MAX), 1)


def chunk_at(size_bytes: int, position: int) -> int:
    """The index of the chunk that contains the byte at `position`."""
    return min(position // CHUNK_BYTES, chunk_count(size_bytes) - 1)


def chunk_end(size_bytes: int, index: int) -> int:
    """The position after the last byte of a chunk."""
    return size_bytes if index + 1 >= chunk_count(size_bytes) else (index + 1) * CHUNK_BYTES


def stripe_at(size_bytes: int, position: int) -> int:
    """The index of the stripe that contains the byte at `position`."""
    return chunk_at(size_bytes, position) // STRIPE_CHUNKS


def stripe_end(size_bytes: int, stripe: int) -> int:
    """The position after the last byte of a stripe."""
    return chunk_end(size_bytes, (stripe + 1) * STRIPE_CHUNKS - 1)


def is_cold(segment: SegmentRef, now_ms: int) -> bool:
    """Whether only catch-up reads need the segment: it is compacted, or older than RECENT_MS."""
    return segment.level > 0 or segment_born_ms(segment.segment_id) < now_ms - RECENT_MS
