"""Compacted segments hold the data of other segments: a rebuild by footers neither reads nor repeats them."""

from penstock.contracts.batches import NO_PRODUCER
from penstock.contracts.codec import Buffer
from penstock.contracts.ids import new_segment_id
from penstock.segment import CompactedWriter
from penstock.segment.keys import segment_key
from penstock_sequencer.rebuild.rebuild import Rebuild
from tests.testkit.fakes.virtual_time import CountingEntropy, VirtualClock, in_virtual_time
from tests.testkit.loads.compaction import empty_batch
from tests.unit.sequencer.rebuild.rebuild_segments import batch
from tests.unit.sequencer.rebuild.rebuild_world import (
    TOPIC,
    FakeStreams,
    Flusher,
    SteppedStore,
    name_old_journal,
    until,
)
from tests.unit.sequencer.sequencer_rig import CLUSTER, rig


async def store_compacted(store: SteppedStore, topic_id: bytes, now_ms: int) -> str:
    """Store the first two offsets as a compacted segment, as young as the segments whose commits are lost."""
    segment_id = new_segment_id(now_ms, bytes(10))
    body: list[Buffer] = []
    writer = CompactedWriter(segment_id, level=1, created_ms=now_ms, sink=body.append)
    writer.begin_run(topic_id, 0)
    writer.add(empty_batch(0, 1))
    writer.end_run()
    writer.finish()
    key = segment_key("", CLUSTER, 1, segment_id)
    await store.put(key, body)
    return key


@in_virtual_time
async def test_a_compacted_segment_is_no_lost_commit() -> None:
    store = SteppedStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        await until(lambda: store.archived())
        flusher = Flusher(built, store)
        for _ in range(2):
            await flusher.produce(batch(NO_PRODUCER))
        compacted_key = await store_compacted(store, built.topic_id(TOPIC), built.clock.now_ms())
        await name_old_journal(store)
    await store.delete(store.archived()[1:])
    rebuild = Rebuild(
        store=store,
        streams=FakeStreams(),
        cluster=CLUSTER,
        now_ms=VirtualClock().now_ms,
        entropy=CountingEntropy(),
        archive_age_min_ms=0,
    )
    await rebuild.run(is_dry_run=False)
    report = rebuild.report
    assert (report.recovered_records, report.repeated_batches, report.refused_batches) == (2, 0, {})
    assert report.young_segments == 2
    assert not report.damaged_segments
    assert store.keys(compacted_key), "the object still exists"
