"""Commands that add to logs or move their start, and their outcomes."""

import msgspec

from penstock.contracts.batches import BatchResult, BatchRun
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.rejections import Rejection


class CommitSegment(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A stored level-0 segment takes its place in the order; runs are sorted by (topic id, partition)."""

    now_ms: int
    segment_id: SegmentId
    size_bytes: int
    writer: str
    zone: str
    runs: list[BatchRun]


class AllocateProducer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A producer id that nobody had before, with epoch 0. Sent twice it gives two ids, which does no harm."""

    now_ms: int


class SegmentCommitted(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """One list per run, one result per batch, in the command's order. The same again for the same segment id."""

    runs: list[list[BatchResult]]


class ProducerAllocated(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A fresh producer id, or a fresh epoch of one."""

    producer_id: int
    producer_epoch: int


TO_HIGH_WATERMARK = -1  # as an offset in DeleteRecords: everything that is there


class LogOffset(msgspec.Struct, frozen=True, array_like=True):
    """A partition's log, and an offset before which everything goes, or TO_HIGH_WATERMARK."""

    topic_id: TopicId
    partition: int
    offset: int


class DeleteRecords(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Log starts move at once; the extents before them go step by step."""

    now_ms: int
    logs: list[LogOffset]


class LogRef(msgspec.Struct, frozen=True, array_like=True):
    """A partition's log."""

    topic_id: TopicId
    partition: int


class LogTrimmed(msgspec.Struct, frozen=True, array_like=True):
    """What became of one log."""

    rejection: Rejection
    log_start_offset: int = -1
    extents: int = 0  # dropped by this command
    dropped_bytes: int = 0


class LogsTrimmed(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """One per log, in the command's order; with `is_more` the command has to be sent again, or `DropExtents`."""

    logs: list[LogTrimmed]
    is_more: bool
