"""Compaction of the partitions in the world of the read path's tests."""

from penstock.contracts.batches import Extent, Marker, SegmentRef
from penstock.contracts.commands import PerItem
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.rejections import Rejection
from penstock.segment.compacted_writer import PLACE_BYTES
from penstock.segment.keys import segment_key
from penstock_gateway.tail.control_batches import MarkerExtent, with_markers
from penstock_sequencer.core.log.control_markers import markers_among
from penstock_sequencer.core.log.partitions import find_partition
from tests.testkit.loads import compaction
from tests.testkit.loads.compaction import Batch, Change, compacted, extents_of, unchanged
from tests.unit.gateway.gateway_read_world import CLUSTER, START_MS, World


def key_of(segment: SegmentRef) -> str:
    return segment_key("", CLUSTER, segment.level, segment.segment_id)


async def all_batches(world: World, topic_id: TopicId, partition: int = 0) -> list[Batch]:
    """The present batches of a partition."""
    return [
        batch
        for extent in extents_of(world.sequencer.state, topic_id, partition)
        for batch in compaction.batches_of(extent, await bytes_of(world, extent))
    ]


async def bytes_of(world: World, extent: Extent) -> bytes:
    if isinstance(extent, MarkerExtent):
        return extent.data
    return await world.store.get_range(key_of(extent.segment), extent.position, extent.length)


def markers_of(world: World, topic_id: TopicId, partition: int) -> list[Marker]:
    """The markers of a partition."""
    found = find_partition(world.sequencer.state, topic_id, partition)
    assert found is not None, "the partition has no log"
    return markers_among(found, found.extents.head, found.extents.end)


async def compact(
    world: World,
    topic_id: TopicId,
    partitions: list[int],
    *,
    level: int = 2,
    change: Change = unchanged,
    place_bytes: int = PLACE_BYTES,
) -> SegmentRef:
    """Replace all extents of these partitions with one compacted segment."""
    world.segments += 1
    segment_id = new_segment_id(START_MS, world.segments.to_bytes(10))
    inputs = [
        (
            topic_id,
            each,
            with_markers(extents_of(world.sequencer.state, topic_id, each), markers_of(world, topic_id, each)),
        )
        for each in partitions
    ]
    data = {extent: await bytes_of(world, extent) for _, _, extents in inputs for extent in extents}
    made = compacted(
        segment_id, inputs, data.__getitem__, now_ms=START_MS, level=level, change=change, place_bytes=place_bytes
    )
    (output,) = made.command.outputs
    segment = SegmentRef(segment_id, level, output.size_bytes, "", "")
    await world.store.put(key_of(segment), made.body)
    assert await world.commit([made.command]) == [PerItem([Rejection.NONE] * len(partitions))]
    return segment


async def remove_segment(world: World, segment: SegmentRef) -> None:
    """Delete a segment's object, as a janitor does after the grace."""
    await world.store.delete([key_of(segment)])
