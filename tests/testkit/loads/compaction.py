"""A simple compactor in memory, for tests of readers of compacted segments."""

import struct
from collections.abc import Callable, Sequence

import crc32c
import msgspec

from penstock.contracts.batches import Extent
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import OutputSegment, ReplacedRun, ReplaceExtents
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.log import PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.records import BATCH_OVERHEAD, LENGTH_END, place_batch
from penstock.segment import CompactedRun, CompactedWriter
from penstock.segment.compacted_writer import PLACE_BYTES
from penstock_gateway.fetch.batch_assembly import Fragment, start_of, walk
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.cluster import State

EPOCH = 1  # the leader epoch in Metadata
EVERYTHING = 2**40

# Base offset, last offset, and the bytes for consumers.
Batch = tuple[int, int, bytes]
# The result for a batch: the same batch, another with the same offsets, or None.
Change = Callable[[Batch], bytes | None]
# The contiguous extents of one partition.
Input = tuple[TopicId, int, Sequence[Extent]]


class Compacted(msgspec.Struct):
    """A segment to store, and the command that replaces its inputs by it."""

    body: list[Buffer]
    command: ReplaceExtents


def unchanged(batch: Batch) -> bytes | None:
    return batch[2]


def empty_batch(base_offset: int, last_offset: int, max_timestamp: int = 0) -> bytes:
    """A batch without records, which key compaction writes to keep the offsets."""
    last_delta = last_offset - base_offset
    rest = struct.pack(">hiqqqhii", 0, last_delta, max_timestamp, max_timestamp, -1, -1, -1, 0)
    front = struct.pack(">qiibI", base_offset, BATCH_OVERHEAD - LENGTH_END, EPOCH, 2, crc32c.crc32c(rest))
    return front + rest


def extents_of(state: State, topic_id: TopicId, partition: int) -> list[Extent]:
    """All extents of a partition in a state."""
    query = PlanQuery(0, [PlanPartition(topic_id, partition, 0, EVERYTHING)], EVERYTHING)
    (plan,) = queries.plan(state, query).partitions
    assert plan.rejection is Rejection.NONE
    return plan.extents


def batches_of(extent: Extent, data: Buffer) -> list[Batch]:
    """The batches in an extent's bytes, with their final offsets."""
    found = []
    for placed in walk(Fragment(start_of(extent), extent.length), data):
        batch = bytearray(memoryview(data)[placed.start : placed.end])
        place_batch(batch, 0, placed.base_offset, EPOCH)
        found.append((placed.base_offset, placed.last_offset, bytes(batch)))
    return found


def compacted(
    segment_id: SegmentId,
    inputs: Sequence[Input],
    read: Callable[[Extent], Buffer],
    *,
    now_ms: int,
    level: int,
    change: Change = unchanged,
    place_bytes: int = PLACE_BYTES,
) -> Compacted:
    """Compact these extents into one segment; the inputs are sorted by topic id and partition."""
    body: list[Buffer] = []
    writer = CompactedWriter(segment_id, level=level, created_ms=now_ms, sink=body.append, place_bytes=place_bytes)
    runs = [_write_run(writer, each, read, change) for each in inputs]
    size_bytes = writer.finish().size_bytes
    ids = list(dict.fromkeys(extent.segment.segment_id for _, _, extents in inputs for extent in extents))
    replaced = [_replaced(run, extents, ids) for run, (_, _, extents) in zip(runs, inputs, strict=True)]
    command = ReplaceExtents(now_ms, "job", ids, [OutputSegment(segment_id, level, size_bytes)], replaced)
    return Compacted(body, command)


def _write_run(writer: CompactedWriter, each: Input, read: Callable[[Extent], Buffer], change: Change) -> CompactedRun:
    topic_id, partition, extents = each
    writer.begin_run(topic_id, partition, extents[0].base_offset)
    batches = [batch for extent in extents for batch in batches_of(extent, read(extent))]
    for batch in batches:
        data = change(batch)
        if data is not None:
            writer.add(data)
        elif batch is batches[-1]:
            writer.add(empty_batch(batch[0], batch[1]))
    return writer.end_run()


def _replaced(run: CompactedRun, extents: Sequence[Extent], ids: list[SegmentId]) -> ReplacedRun:
    return ReplacedRun(
        topic_id=run.topic_id,
        partition=run.partition,
        base_offset=extents[0].base_offset,
        last_offset=run.last_offset,
        inputs=[number for each in extents for number in (ids.index(each.segment.segment_id), each.position)],
        output=0,
        position=run.position,
        length=run.length,
        max_timestamp=run.max_timestamp,
    )
