"""Compaction of what a read path's world holds."""

from gateway_read_world import CLUSTER, START_MS, World

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.commands import PerItem
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.refusals import Refusal
from penstock.segment.keys import segment_key
from tests.testkit import compaction
from tests.testkit.compaction import Batch, Change, as_it_is, compacted, extents_of


def key_of(segment: SegmentRef) -> str:
    return segment_key("", CLUSTER, segment.level, segment.segment_id)


async def all_batches(world: World, topic_id: TopicId, partition: int = 0) -> list[Batch]:
    """What a partition holds now."""
    return [
        batch
        for extent in extents_of(world.sequencer.state, topic_id, partition)
        for batch in compaction.batches_of(extent, await bytes_of(world, extent))
    ]


async def bytes_of(world: World, extent: Extent) -> bytes:
    return await world.store.get_range(key_of(extent.segment), extent.position, extent.length)


async def compact(
    world: World, topic_id: TopicId, partitions: list[int], *, level: int = 2, change: Change = as_it_is
) -> SegmentRef:
    """Put all extents of these partitions into one compacted segment, and let it take their place."""
    world.segments += 1
    segment_id = new_segment_id(START_MS, world.segments.to_bytes(10))
    inputs = [(topic_id, each, extents_of(world.sequencer.state, topic_id, each)) for each in partitions]
    data = {extent: await bytes_of(world, extent) for _, _, extents in inputs for extent in extents}
    made = compacted(segment_id, inputs, data.__getitem__, now_ms=START_MS, level=level, change=change)
    (output,) = made.command.outputs
    segment = SegmentRef(segment_id, level, output.size_bytes, "", "")
    await world.store.put(key_of(segment), made.body)
    assert await world.commit([made.command]) == [PerItem([Refusal.NONE] * len(partitions))]
    return segment


async def forget_segment(world: World, segment: SegmentRef) -> None:
    """Delete a segment's object, as after its grace."""
    await world.store.delete([key_of(segment)])
