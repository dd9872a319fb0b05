"""The chunks that segments are loaded and kept in, and who of a zone owns them together. Pure.

Gateways and cachers must mean the same bytes by a chunk; where they do not, as while an upgrade rolls, a chunk is
loaded once more than it need be.
"""

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import segment_born_ms

CHUNK_BYTES = 4 * 1024 * 1024  # DESIGN section 6
# A full segment is a little longer than the flusher's limit. What is left over belongs to the chunk before it, or each
# segment would cost one GET more. A chunk with that is still one answer on the bus (8 MiB).
SPILL_BYTES_MAX = CHUNK_BYTES // 4
STRIPE_CHUNKS = 4  # of a compacted segment that have one owner: one GET can bring them all to a sequential reader
RECENT_MS = 60_000  # so old is what those read who follow the end of the log, and whoever was away for a moment


def chunk_count(size_bytes: int) -> int:
    """How many chunks a segment has, at least one."""
    whole, rest = divmod(size_bytes, CHUNK_BYTES)
    return max(whole + (rest > SPILL_BYTES_MAX), 1)


def chunk_at(size_bytes: int, position: int) -> int:
    """The index of the chunk with a byte of a segment."""
    return min(position // CHUNK_BYTES, chunk_count(size_bytes) - 1)


def chunk_end(size_bytes: int, index: int) -> int:
    """The position behind a chunk's last byte."""
    return size_bytes if index + 1 >= chunk_count(size_bytes) else (index + 1) * CHUNK_BYTES


def stripe_at(size_bytes: int, position: int) -> int:
    """The index of the stripe with a byte of a segment."""
    return chunk_at(size_bytes, position) // STRIPE_CHUNKS


def stripe_end(size_bytes: int, stripe: int) -> int:
    """The position behind a stripe's last byte."""
    return chunk_end(size_bytes, (stripe + 1) * STRIPE_CHUNKS - 1)


def is_history(segment: SegmentRef, now_ms: int) -> bool:
    """Whether a segment is read by those only who replay: a compacted one, or one written some time ago."""
    return segment.level > 0 or segment_born_ms(segment.segment_id) < now_ms - RECENT_MS
