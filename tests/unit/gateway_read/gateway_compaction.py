"""Compaction for the tests of the read path: what a compactor does to partitions, in a few lines and in memory."""

import struct
from collections.abc import Callable

import crc32c
from gateway_read_world import CLUSTER, START_MS, World

from gateway.assemble import Piece, start_of, walk
from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import OutputSegment, PerItem, ReplacedRun, ReplaceExtents
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.queries import PlanPartition, PlanQuery
from penstock.contracts.refusals import Refusal
from penstock.kafkawire.records import BATCH_OVERHEAD, LENGTH_END, place_batch
from penstock.segment import CompactedRun, CompactedWriter
from penstock.segment.keys import segment_key
from sequencer.core import queries

EPOCH = 1  # of topics, as Metadata tells it
EVERYTHING = 2**40

# Base offset, last offset, bytes as consumers get them.
Batch = tuple[int, int, bytes]
# What becomes of a batch: itself, another of the same offsets, or nothing.
Change = Callable[[Batch], bytes | None]


def as_it_is(batch: Batch) -> bytes | None:
    return batch[2]


def empty_batch(base_offset: int, last_offset: int, max_timestamp: int = START_MS) -> bytes:
    """What key compaction leaves to hold offsets when all records are gone."""
    last_delta = last_offset - base_offset
    rest = struct.pack(">hiqqqhii", 0, last_delta, max_timestamp, max_timestamp, -1, -1, -1, 0)
    front = struct.pack(">qiibI", base_offset, BATCH_OVERHEAD - LENGTH_END, EPOCH, 2, crc32c.crc32c(rest))
    return front + rest


def extents_of(world: World, topic_id: TopicId, partition: int) -> list[Extent]:
    """All extents of a partition as the state machine has them now."""
    query = PlanQuery(0, [PlanPartition(topic_id, partition, 0, EVERYTHING)], EVERYTHING)
    (plan,) = queries.plan(world.sequencer.state, query).partitions
    assert plan.refusal is Refusal.NONE
    return plan.extents


async def batches_of(world: World, extent: Extent) -> list[Batch]:
    """An extent's batches with their real offsets."""
    segment = extent.segment
    key = segment_key("", CLUSTER, segment.level, segment.segment_id)
    data = await world.store.get_range(key, extent.position, extent.length)
    found = []
    for placed in walk(Piece(start_of(extent), extent.length), data):
        batch = bytearray(data[placed.start : placed.end])
        place_batch(batch, 0, placed.base_offset, EPOCH)
        found.append((placed.base_offset, placed.last_offset, bytes(batch)))
    return found


async def compact(
    world: World,
    topic_id: TopicId,
    partitions: list[int],
    *,
    level: int = 2,
    change: Change = as_it_is,
    announce: bool = True,
) -> SegmentRef:
    """Put all extents of these partitions into one compacted segment, and let it take their place."""
    world.segments += 1
    segment_id = new_segment_id(START_MS, world.segments.to_bytes(10))
    out: list[Buffer] = []
    writer = CompactedWriter(segment_id, level=level, created_ms=START_MS, sink=out.append)
    inputs = [extents_of(world, topic_id, partition) for partition in partitions]
    runs = [
        await _write_run(world, writer, topic_id, partition, extents, change)
        for partition, extents in zip(partitions, inputs, strict=True)
    ]
    size_bytes = writer.finish().size_bytes
    await world.store.put(segment_key("", CLUSTER, level, segment_id), out)
    ids = list(dict.fromkeys(extent.segment.segment_id for extents in inputs for extent in extents))
    replaced = [_replaced(run, extents, ids) for run, extents in zip(runs, inputs, strict=True)]
    outputs = [OutputSegment(segment_id, level, size_bytes)]
    (outcome,) = await world.commit([ReplaceExtents(START_MS, "job", ids, outputs, replaced)], announce=announce)
    assert outcome == PerItem([Refusal.NONE] * len(runs))
    return SegmentRef(segment_id, level, size_bytes, "", "")


async def _write_run(
    world: World, writer: CompactedWriter, topic_id: TopicId, partition: int, extents: list[Extent], change: Change
) -> CompactedRun:
    writer.begin_run(topic_id, partition, extents[0].base_offset)
    batches = [batch for extent in extents for batch in await batches_of(world, extent)]
    for batch in batches:
        data = change(batch)
        if data is not None:
            writer.add(data)
        elif batch is batches[-1]:
            writer.add(empty_batch(batch[0], batch[1]))
    return writer.end_run()


def _replaced(run: CompactedRun, extents: list[Extent], ids: list[bytes]) -> ReplacedRun:
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


async def forget_segment(world: World, segment: SegmentRef) -> None:
    """Delete a segment's object, as after its grace."""
    await world.store.delete([segment_key("", CLUSTER, segment.level, segment.segment_id)])
