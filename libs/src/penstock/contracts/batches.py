"""Metadata of record batches, runs and extents, as services exchange it without opening the batches."""

import msgspec

from penstock.contracts.ids import ID_BYTES, SegmentId, TopicId

TRANSACTIONAL = 0x10  # the bit of `attributes` that a transactional batch carries
NO_PRODUCER = -1
# In the place of a segment's id: the extent is a transaction marker, which is not stored in any segment.
NO_SEGMENT_ID: SegmentId = bytes(ID_BYTES)
MARKER_BYTES = 78  # a batch with one control record


class BatchMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metadata of one record batch, taken from its 61-byte header."""

    length: int  # bytes, header included
    record_count: int
    max_timestamp: int  # ms since 1970
    producer_id: int  # -1: not idempotent
    producer_epoch: int
    base_sequence: int
    attributes: int
    adds_partition: bool = False  # transactional: the batch itself adds its partition (KIP-890)
    principal: int = 0  # in a commit: its sender's place in `CommitSegment.principals`, from 1 on; 0: not named


class BatchRun(msgspec.Struct, frozen=True, array_like=True):
    """Contiguous batches of one partition in one segment, in commit order; the first starts at byte `position`."""

    topic_id: TopicId
    partition: int
    position: int  # bytes from the start of the object
    batches: list[BatchMeta]


class SegmentRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment and its sources: the store always has the bytes, its writer has them for a while after the flush."""

    segment_id: SegmentId
    level: int
    size_bytes: int
    writer: str  # the flusher instance that wrote a level-0 segment, "" for higher levels
    zone: str  # the writer's zone


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of one partition in one segment, with its offsets (docs/design.md, section 5).

    A marker has `NO_SEGMENT_ID`, no position and no bytes.
    """

    base_offset: int
    last_offset: int
    segment: SegmentRef
    position: int
    length: int
    max_timestamp: int


class Marker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The content of the control record at `offset`; a reader builds the batch from it (ADR 0012)."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    timestamp: int  # the state machine's clock when the transaction ended
    first_offset: int  # of the transaction in this partition


class AbortedTransaction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An aborted transaction in one partition; `last_offset` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class BatchResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of one produced batch: its offset, or a rejection."""

    rejection: int  # a Rejection's value, 0 for accepted
    base_offset: int = -1
    log_start_offset: int = -1
