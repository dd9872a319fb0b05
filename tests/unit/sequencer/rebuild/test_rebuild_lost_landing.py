"""A rebuild after the loss of the landing store: records of express topics are lost, offsets and all others stay."""

import msgspec
import pytest

from penstock.contracts.batches import NO_PRODUCER
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import is_landed
from penstock.kafkawire.records import batches
from penstock.segment.keys import is_landing_key, segment_key, segments_prefix
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.rebuild.lost_landing import replace_lost_extents
from penstock_sequencer.rebuild.rebuild import Rebuild
from penstock_sequencer.rebuild.replay import replay_archive
from penstock_sequencer.rebuild.report import Report, as_text
from penstock_sequencer.storage.snapshot_store import read_stored_snapshot
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
from tests.unit.sequencer.sequencer_rig import CLUSTER, rig

LANES = (False, True, True, False, True)  # of segments with one record each: whether they are express segments


async def a_lost_journal() -> SteppedStore:
    store = SteppedStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        flusher = Flusher(built, store)
        for is_express_lane in LANES:
            await flusher.produce(batch(NO_PRODUCER), is_express=is_express_lane)
        sequence = built.store.last_sequence
        await until(lambda: store.archived() and int(store.archived()[-1].rpartition("-")[2]) >= sequence)
        await name_old_journal(store)
    return store


async def lose_landing(store: SteppedStore) -> None:
    await store.delete([key for key in store.keys(segments_prefix("", CLUSTER)) if is_landing_key(key)])


async def rebuilt(store: SteppedStore, *, has_landing: bool = True, is_dry_run: bool = False) -> Rebuild:
    rebuild = Rebuild(
        store=store,
        streams=FakeStreams(),
        cluster=CLUSTER,
        now_ms=VirtualClock().now_ms,
        entropy=CountingEntropy(),
        has_landing=has_landing,
        archive_age_min_ms=0,
    )
    await rebuild.run(is_dry_run=is_dry_run)
    return rebuild


async def offsets_with_records(store: SteppedStore, state: State) -> list[tuple[int, int, int]]:
    """For each batch that a reader gets: its first and last offset, and its number of records."""
    (partition,) = state.topics[TOPIC].partitions
    found = []
    columns = partition.extents
    for row in range(columns.head, columns.end):
        slot = columns.segments[row]
        key = segment_key("", CLUSTER, state.segments.levels[slot], state.segments.id(slot))
        data = await store.get_range(key, columns.positions[row], columns.lengths[row])
        if state.segments.levels[slot] == 0:  # bytes of tests are no batches
            found.append((columns.base_offsets[row], columns.last_offsets[row], 1))
            continue
        for _, header in batches(data):
            found.append((header.base_offset, header.base_offset + header.last_offset_delta, header.record_count))
    return found


@in_virtual_time
async def test_lost_express_segments_leave_their_offsets_and_no_records() -> None:
    store = await a_lost_journal()
    await lose_landing(store)
    report = (await rebuilt(store)).report
    assert (len(report.lost_segments), report.lost_records) == (3, 3)
    assert "3 records are lost, in 3 segments" in as_text(report)
    state = (await read_stored_snapshot(store, CLUSTER, report.first_sequence - 1)).state
    assert await offsets_with_records(store, state) == [(0, 0, 1), (1, 2, 0), (3, 3, 1), (4, 4, 0)]
    assert state.topics[TOPIC].partitions[0].high_watermark == 5
    live = [slot for slot in state.segments.by_number if state.segments.live_extents[slot]]
    assert not any(is_landed(state.segments.id(slot)) for slot in live)


@in_virtual_time
async def test_express_segments_that_still_exist_stay() -> None:
    store = await a_lost_journal()
    report = (await rebuilt(store)).report
    assert (report.lost_segments, report.lost_records) == ([], 0)
    state = (await read_stored_snapshot(store, CLUSTER, report.first_sequence - 1)).state
    assert await offsets_with_records(store, state) == [(offset, offset, 1) for offset in range(5)]


@in_virtual_time
async def test_a_store_without_its_landing_store_is_not_taken_for_a_loss() -> None:
    """Otherwise an address without the option would remove records that still exist."""
    store = await a_lost_journal()
    before = store.contents()
    with pytest.raises(Invalid, match=r"3 segments are in a landing store, but .* add its option landing"):
        await rebuilt(store, has_landing=False)
    assert store.contents() == before


@in_virtual_time
async def test_a_dry_run_reports_the_loss_and_changes_nothing() -> None:
    store = await a_lost_journal()
    await lose_landing(store)
    before = store.contents()
    report = (await rebuilt(store, is_dry_run=True)).report
    assert (len(report.lost_segments), report.lost_records) == (3, 3)
    assert store.contents() == before


@pytest.mark.parametrize("extents_max", [1, 2, 20_000])
@in_virtual_time
async def test_a_command_replaces_no_more_extents_than_it_may(extents_max: int) -> None:
    store = await a_lost_journal()
    await lose_landing(store)
    known = await replay_archive(store, CLUSTER, Report(cluster=CLUSTER))
    state = known.state
    maintenance = msgspec.structs.replace(state.limits.maintenance, replaced_extents_max=extents_max)
    state.limits = msgspec.structs.replace(state.limits, maintenance=maintenance)
    await replace_lost_extents(
        store,
        CLUSTER,
        state,
        Report(cluster=CLUSTER),
        entropy=CountingEntropy(),
        has_landing=True,
        is_dry_run=False,
    )
    middle = [(1, 1, 0), (2, 2, 0)] if extents_max == 1 else [(1, 2, 0)]
    assert await offsets_with_records(store, state) == [(0, 0, 1), *middle, (3, 3, 1), (4, 4, 0)]
