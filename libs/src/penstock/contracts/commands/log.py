"""Commands that append to logs or trim them, and their outcomes."""

import msgspec

from penstock.contracts.batches import BatchResult, BatchRun
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.rejections import Rejection

# The usual time between the sending of a commit and its `not_after_ms`. It ends earlier if gateways had to confirm it.
COMMIT_LEASE_MS = 60_000


class CommitSegment(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Give the batches of a stored level-0 segment their offsets; runs are sorted by (topic id, partition)."""

    now_ms: int
    segment_id: SegmentId
    size_bytes: int
    writer: str
    zone: str
    runs: list[BatchRun]
    # From COMMIT_LEASE_LEVEL on: the latest time of the state machine's clock at which this has an effect; 0: any.
    # The machine remembers the commit until a little later, so a flusher sends no other commit of the segment.
    not_after_ms: int = 0
    principals: list[str] = []  # the senders of its idempotent batches, without ANONYMOUS (ADR 0040)


class AllocateProducer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Allocate a new producer id, with epoch 0. A retry allocates a second id, which does no harm."""

    now_ms: int


class SegmentCommitted(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """One list per run, one result per batch, in the command's order. A retry gets the same results."""

    runs: list[list[BatchResult]]
    # The machine remembers almost as many commits as it can: flushers make fewer and larger segments for a while.
    is_crowded: bool = False


class ProducerAllocated(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A new producer id, or a new epoch of a known one."""

    producer_id: int
    producer_epoch: int


TO_HIGH_WATERMARK = -1  # as an offset in DeleteRecords: delete all records


class LogOffset(msgspec.Struct, frozen=True, array_like=True):
    """A partition's log and its new start, or TO_HIGH_WATERMARK; all records before it are deleted."""

    topic_id: TopicId
    partition: int
    offset: int


class DeleteRecords(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Trim logs. Log starts move at once; the extents before them are removed in steps."""

    now_ms: int
    logs: list[LogOffset]


class LogRef(msgspec.Struct, frozen=True, array_like=True):
    """A partition's log."""

    topic_id: TopicId
    partition: int


class LogTrimmed(msgspec.Struct, frozen=True, array_like=True):
    """The result for one log."""

    rejection: Rejection
    log_start_offset: int = -1
    extents: int = 0  # removed by this command
    dropped_bytes: int = 0


class LogsTrimmed(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """One result per log, in the command's order. With `is_more` send the command again, or `DropExtents`."""

    logs: list[LogTrimmed]
    is_more: bool
