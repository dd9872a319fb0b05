"""Record batches as the services name them without opening them: their metadata, and runs of them."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId

TRANSACTIONAL = 0x10  # the bit of `attributes` that a transactional batch carries
NO_PRODUCER = -1


class BatchMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of one record batch from its 61-byte header."""

    length: int  # bytes, header included
    record_count: int
    max_timestamp: int  # ms since 1970
    producer_id: int  # -1: not idempotent
    producer_epoch: int
    base_sequence: int
    attributes: int


class BatchRun(msgspec.Struct, frozen=True, array_like=True):
    """Contiguous batches of one partition in one segment, in commit order, from byte `position` on."""

    topic_id: TopicId
    partition: int
    position: int  # bytes from the start of the object
    batches: list[BatchMeta]


class SegmentRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a segment's bytes can be had: the store always, and its writer while that still holds it."""

    segment_id: SegmentId
    level: int
    size_bytes: int
    writer: str  # the flusher instance that wrote a level-0 segment, "" above
    zone: str  # the writer's zone


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of one partition in one segment, with its offsets (DESIGN section 5)."""

    base_offset: int
    last_offset: int
    segment: SegmentRef
    position: int
    length: int
    max_timestamp: int


class BatchResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one produced batch: `refusal` 0 and its offset, or why not."""

    refusal: int  # a Refusal's value, 0 for accepted
    base_offset: int = -1
    log_start_offset: int = -1
