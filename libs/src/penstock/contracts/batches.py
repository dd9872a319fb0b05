"""Record batches as the services name them without opening them: their metadata, and runs of them."""

import msgspec

from penstock.contracts.ids import ID_BYTES, SegmentId, TopicId

TRANSACTIONAL = 0x10  # the bit of `attributes` that a transactional batch carries
NO_PRODUCER = -1
# In the place of a segment's id: the extent is a control record of a transaction's end, which is stored nowhere.
NO_SEGMENT_ID: SegmentId = bytes(ID_BYTES)
MARKER_BYTES = 78  # a batch with one control record


class BatchMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of one record batch from its 61-byte header."""

    length: int  # bytes, header included
    record_count: int
    max_timestamp: int  # ms since 1970
    producer_id: int  # -1: not idempotent
    producer_epoch: int
    base_sequence: int
    attributes: int
    adds_partition: bool = False  # transactional: its partition needs not be added before (KIP-890)


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
    """One run of one partition in one segment, with its offsets (DESIGN section 5).

    A marker has `NO_SEGMENT_ID`, no position and no bytes.
    """

    base_offset: int
    last_offset: int
    segment: SegmentRef
    position: int
    length: int
    max_timestamp: int


class Marker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the control record at `offset` says; who reads makes its batch from that (ADR 0012)."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    timestamp: int  # the machine's clock when the transaction ended
    first_offset: int  # of the transaction in this partition


class AbortedTransaction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An aborted transaction in one partition; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class BatchResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one produced batch: `rejection` 0 and its offset, or why not."""

    rejection: int  # a Refusal's value, 0 for accepted
    base_offset: int = -1
    log_start_offset: int = -1
