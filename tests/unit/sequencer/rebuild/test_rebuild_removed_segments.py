"""A rebuild restores no removed segment and no deleted topic."""

from penstock.contracts.batches import NO_PRODUCER
from penstock.contracts.commands import (
    AlterConfigs,
    Command,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DeleteTopic,
    Done,
    LeaseJob,
    LogOffset,
    LogsTrimmed,
    Outcome,
    PerItem,
    RemoveSegments,
)
from penstock.contracts.ids import SegmentId
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.segment.keys import segment_key, segments_prefix
from penstock_sequencer.core.maintenance.custody import secured_sequence
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.custodian.snapshot_schedule import SnapshotSettings
from penstock_sequencer.rebuild.rebuild import Rebuild
from penstock_sequencer.rebuild.replay import replay_archive
from penstock_sequencer.rebuild.report import Report
from tests.testkit.fakes.virtual_time import CountingEntropy, VirtualClock, in_virtual_time
from tests.unit.sequencer.rebuild.rebuild_segments import batch
from tests.unit.sequencer.rebuild.rebuild_world import (
    TOPIC,
    FakeStreams,
    Flusher,
    SteppedStore,
    name_old_journal,
    until,
)
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig


async def command(built: SequencerRig, wanted: Command) -> Outcome:
    (outcome,) = await built.client.command([wanted], deadline_s=10)
    return outcome


def known(state: State) -> list[SegmentId]:
    return [state.segments.id(slot) for slot in state.segments.by_number]


async def a_cluster_with_three_segments(built: SequencerRig, store: SteppedStore) -> Flusher:
    await until(lambda: built.level >= JANITOR_LEVEL)
    await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
    flusher = Flusher(built, store)
    for _ in range(3):
        await flusher.produce(batch(NO_PRODUCER))
    return flusher


async def all_is_archived(built: SequencerRig, store: SteppedStore) -> None:
    sequence = built.store.last_sequence
    await until(lambda: store.archived() and int(store.archived()[-1].rpartition("-")[2]) >= sequence)


async def rebuilt(store: SteppedStore) -> Rebuild:
    rebuild = Rebuild(
        store=store,
        streams=FakeStreams(),
        cluster=CLUSTER,
        now_ms=VirtualClock().now_ms,
        entropy=CountingEntropy(),
        archive_age_min_ms=0,
    )
    await rebuild.run()
    return rebuild


@in_virtual_time
async def test_an_object_of_a_removed_segment_is_not_recovered() -> None:
    """Not even if the object still exists, or exists again after a deletion was undone in the store."""
    store = SteppedStore()
    async with rig("a", objects=store) as built:
        await a_cluster_with_three_segments(built, store)
        running = built.running["a"]
        state = running.sequencer.replica.state
        first, second, third = known(state)
        log = LogOffset(built.topic_id(TOPIC), 0, 2)
        assert isinstance(await command(built, DeleteRecords(built.clock.now_ms(), [log])), LogsTrimmed)
        removed = await command(built, RemoveSegments(built.clock.now_ms(), [first]))
        assert removed == PerItem([Rejection.NONE])
        await all_is_archived(built, store)
        await name_old_journal(store)
    assert len(store.keys(segments_prefix("", CLUSTER))) == 3
    rebuild = await rebuilt(store)
    assert (rebuild.report.young_segments, rebuild.report.recovered_records) == (0, 0)
    past = await replay_archive(store, CLUSTER, Report(cluster=CLUSTER))
    assert known(past.state) == [second, third]
    assert [past.state.segments.id(slot) for slot in past.state.segments.dead] == [second]


@in_virtual_time
async def test_late_batches_for_a_recoverable_topic_make_no_second_topic() -> None:
    store = SteppedStore()
    async with rig("a", objects=store) as built:
        flusher = await a_cluster_with_three_segments(built, store)
        topic_id = built.topic_id(TOPIC)
        window = ConfigChange("penstock.undelete.window.ms", ConfigOperation.SET, "86400000")
        assert isinstance(await command(built, AlterConfigs(built.clock.now_ms(), TOPIC, [window])), Done)
        await flusher.store(batch(NO_PRODUCER))  # its commit comes too late
        assert await command(built, DeleteTopic(built.clock.now_ms(), TOPIC, bytes(16))) == Done()
        await all_is_archived(built, store)
        await name_old_journal(store)
    rebuild = await rebuilt(store)
    report = rebuild.report
    assert (report.adopted_topics, report.refused_batches, report.deleted_topic_batches) == ({}, {}, 1)
    past = await replay_archive(store, CLUSTER, Report(cluster=CLUSTER))
    assert not past.state.topics
    assert list(past.state.recoverable) == [topic_id]


def deletable(state: State) -> list[SegmentId]:
    """The segments that janitors may delete now, apart from the grace."""
    table = state.segments
    secured = secured_sequence(state)
    return [table.id(slot) for slot in table.dead if table.dead_sequences[slot] <= secured]


async def check_nothing_is_missing(store: SteppedStore, gone: list[SegmentId]) -> None:
    """Check the largest loss that a rebuild survives: the journal, all its archive, and the newer of two snapshots."""
    left = store.copy()
    await left.delete([segment_key("", CLUSTER, 0, segment_id) for segment_id in gone])
    await left.delete(left.archived())
    left.damage(left.snapshots()[-1])
    await name_old_journal(left)
    await rebuilt(left)
    table = (await replay_archive(left, CLUSTER, Report(cluster=CLUSTER))).state.segments
    needed = [table.id(slot) for slot in table.by_number if table.live_extents[slot]]
    assert needed
    for segment_id in needed:
        assert left.keys(segment_key("", CLUSTER, 0, segment_id))


@in_virtual_time
async def test_no_journal_made_without_the_archive_needs_what_janitors_may_have_deleted() -> None:
    store = SteppedStore()
    async with rig(objects=store) as built:
        built.snapshots = SnapshotSettings(entries=1_000_000, interval_ms=60_000)
        await built.start("a")
        await a_cluster_with_three_segments(built, store)
        state = built.running["a"].sequencer.replica.state
        await until(lambda: len(state.custody.snapshots) == 1, 90)
        await command(built, LeaseJob(built.clock.now_ms(), "a job", "compactor-1", known(state)[:1], 60_000))
        await until(lambda: len(state.custody.snapshots) == 2, 90)
        log = LogOffset(built.topic_id(TOPIC), 0, 2)
        assert isinstance(await command(built, DeleteRecords(built.clock.now_ms(), [log])), LogsTrimmed)
        may_go = []
        for _ in range(3):
            may_go.append(deletable(state))
            await check_nothing_is_missing(store, may_go[-1])
            before = state.custody.snapshots
            await until(lambda before=before: state.custody.snapshots != before or may_go[-1], 90)
        assert may_go == [[], [], known(state)[:2]]
