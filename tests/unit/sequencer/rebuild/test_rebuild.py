"""A lost journal is made again from the store alone: exactly up to the archive's end, completely after that."""

import asyncio
import contextlib

import msgspec
import pytest

from penstock.contracts.entries import decode_entry, next_hash
from penstock.contracts.errors import Conflict, Invalid, Unavailable
from penstock.segment.keys import journal_archive_key, snapshot_key
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from penstock_sequencer.journal_guard.completeness import check_journal_has_what_is_archived
from penstock_sequencer.rebuild.preconditions import ARCHIVE_AGE_MIN_MS
from penstock_sequencer.rebuild.rebuild import Rebuild
from penstock_sequencer.rebuild.report import as_text, segment_name
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.storage.journal_marker import JournalIdentity, marker_key
from penstock_sequencer.storage.snapshot_store import list_snapshots, read_stored_snapshot
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import CountingEntropy, VirtualClock, in_virtual_time
from tests.unit.sequencer.core.core_world import check_invariants
from tests.unit.sequencer.rebuild.rebuild_segments import batch
from tests.unit.sequencer.rebuild.rebuild_world import (
    NEW,
    OLD,
    TOPIC,
    FakeStreams,
    Flusher,
    SteppedStore,
    commit_offset,
    name_old_journal,
    new_producer,
    until,
)
from tests.unit.sequencer.sequencer_rig import CLUSTER, rig


class Lost:
    """The store when the journal was lost, and the acknowledged records."""

    def __init__(self) -> None:
        self.store = SteppedStore()
        self.journal = MemoryJournalStore()
        self.producer = 0
        self.acknowledged: list[tuple[int, int]] = []  # (offset, the producer's sequence)
        self.archived_sequence = 0
        self.last_sequence = 0

    async def happen(self) -> None:
        """Run a cluster: some of its entries are archived, some records are only in segments."""
        async with rig("a", objects=self.store) as built:
            await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
            self.producer = await new_producer(built)
            flusher = Flusher(built, self.store)
            for sequence in range(6):
                await flusher.produce(batch(self.producer, sequence=sequence))
                await commit_offset(built, sequence)
            custody = built.running["a"].sequencer.replica.state.custody
            await until(lambda: custody.archived_sequence >= built.client.seen_sequence)
            self.archived_sequence = custody.archived_sequence
            for sequence in range(6, 9):
                await flusher.produce(batch(self.producer, sequence=sequence))
            await commit_offset(built, 8)
            await name_old_journal(self.store)
            self.acknowledged = [(offset, each.base_sequence) for offset, each in flusher.acknowledged]
            self.journal = built.store
            self.last_sequence = built.store.last_sequence


async def lost() -> Lost:
    made = Lost()
    await made.happen()
    return made


async def rebuilt(
    store: SteppedStore, streams: FakeStreams | None = None, *, is_dry_run: bool = False, age_min_ms: int = 0
) -> Rebuild:
    rebuild = Rebuild(
        store=store,
        streams=streams or FakeStreams(),
        cluster=CLUSTER,
        now_ms=VirtualClock().now_ms,
        entropy=CountingEntropy(),
        archive_age_min_ms=age_min_ms,
    )
    await rebuild.run(is_dry_run=is_dry_run)
    return rebuild


async def state_at(store: SteppedStore, sequence: int) -> State:
    return (await read_stored_snapshot(store, CLUSTER, sequence)).state


def partition(state: State) -> Partition:
    return state.topics[TOPIC].partitions[0]


async def marker(store: SteppedStore) -> JournalIdentity:
    return msgspec.json.decode(await store.get(marker_key(CLUSTER)), type=JournalIdentity)


async def check_is_good(store: SteppedStore, streams: FakeStreams, first: int) -> State:
    """Check that the new journal, its snapshots and the marker agree; returns the state from which sequencers start."""
    assert streams.held is not None
    assert (streams.held.first_sequence, streams.held.last_sequence) == (first, first)
    entry = streams.held.entry(first)
    assert entry is not None
    before = await read_stored_snapshot(store, CLUSTER, first - 1)
    after = await read_stored_snapshot(store, CLUSTER, first)
    assert after.hashes == [before.hashes[-1], next_hash(before.hashes[-1], entry)]
    apply_entry(before.state, first, decode_entry(entry).requests)
    assert encode_state(before.state) == encode_state(after.state)
    check_invariants(after.state)
    assert (await marker(store)).created == NEW == streams.held.created
    return after.state


@in_virtual_time
async def test_every_acknowledged_record_is_at_its_offset_and_its_producer_can_continue() -> None:
    gone = await lost()
    streams = FakeStreams()
    report = (await rebuilt(gone.store, streams)).report
    state = await check_is_good(gone.store, streams, report.first_sequence)
    extents = partition(state).extents
    assert list(extents.base_offsets) == [offset for offset, _ in gone.acknowledged] == list(range(9))
    assert partition(state).producers[gone.producer].last_sequence == 8
    assert report.archived_sequence >= gone.archived_sequence
    assert (report.recovered_records, report.repeated_batches, report.refused_batches) == (3, 0, {})


@in_virtual_time
async def test_groups_continue_at_the_offsets_of_the_archives_end() -> None:
    gone = await lost()
    report = (await rebuilt(gone.store)).report
    state = await state_at(gone.store, report.first_sequence)
    assert state.groups["g"].offsets[TOPIC][0].offset == 5


@in_virtual_time
async def test_no_sequence_and_no_producer_id_is_used_twice() -> None:
    gone = await lost()
    report = (await rebuilt(gone.store)).report
    assert report.first_sequence > gone.last_sequence + 1_000_000
    state = await state_at(gone.store, report.first_sequence)
    assert state.next_producer_id > gone.producer + 100_000


@in_virtual_time
async def test_a_stored_segment_without_acknowledgement_may_be_recovered() -> None:
    gone = Lost()
    async with rig("a", objects=gone.store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        await until(lambda: gone.store.archived())
        await Flusher(built, gone.store).store(batch(records=4))
    report = (await rebuilt(gone.store)).report
    assert partition(await state_at(gone.store, report.first_sequence)).high_watermark == 4


@in_virtual_time
async def test_a_segment_older_than_its_flushers_newest_archived_one_is_recovered_and_reported() -> None:
    gone = Lost()
    async with rig("a", objects=gone.store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        flusher, other = Flusher(built, gone.store), Flusher(built, gone.store, "flusher-2")
        given_up, under_way = await flusher.store(batch(records=4)), await other.store(batch(records=2))
        await flusher.produce(batch())
        await until(lambda: gone.store.archived())
    report = (await rebuilt(gone.store)).report
    assert report.passed_by_segments == [segment_name(given_up.segment_id)]
    assert report.recovered_segments == [segment_name(each.segment_id) for each in (given_up, under_way)]
    assert partition(await state_at(gone.store, report.first_sequence)).high_watermark == 1 + 4 + 2


@in_virtual_time
async def test_a_segment_acknowledged_after_its_flushers_clock_stepped_back_is_recovered() -> None:
    gone = Lost()
    async with rig("a", objects=gone.store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        flusher = Flusher(built, gone.store)
        await built.client.command([await flusher.store(batch(), ahead_ms=60_000)], deadline_s=10)
        count = len(gone.store.archived())
        await until(lambda: len(gone.store.archived()) > count)
        await flusher.produce(batch(records=3))
    report = (await rebuilt(gone.store)).report
    assert (len(report.passed_by_segments), report.recovered_records) == (1, 3)
    assert partition(await state_at(gone.store, report.first_sequence)).high_watermark == 1 + 3


@in_virtual_time
async def test_a_segment_born_in_the_future_is_left_out_and_the_clock_stays_where_it_is() -> None:
    gone = Lost()
    async with rig("a", objects=gone.store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        await until(lambda: gone.store.archived())
        flusher = Flusher(built, gone.store)
        a_little = await flusher.store(batch(), ahead_ms=DEFAULT_LIMITS.log.segment_commit_age_max_ms)
        far = await flusher.store(batch(records=4), ahead_ms=DEFAULT_LIMITS.log.segment_commit_age_max_ms + 60_000)
    report = (await rebuilt(gone.store)).report
    assert report.future_segments == [segment_name(far.segment_id)]
    assert report.recovered_segments == [segment_name(a_little.segment_id)]
    assert "segment born in the future, left out" in as_text(report)
    state = await state_at(gone.store, report.first_sequence)
    assert partition(state).high_watermark == 1
    assert state.clock_ms <= VirtualClock().now_ms()


@in_virtual_time
async def test_without_the_newest_archive_objects_the_footers_bring_the_records_back() -> None:
    gone = Lost()
    async with rig("a", objects=gone.store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        producer = await new_producer(built)
        await until(lambda: gone.store.archived())
        flusher = Flusher(built, gone.store)
        for sequence in range(4):
            await flusher.produce(batch(producer, sequence=2 * sequence, records=2))
            count = len(gone.store.archived())
            await until(lambda count=count: len(gone.store.archived()) > count)  # type: ignore[misc]
    await gone.store.delete(gone.store.archived()[1:])
    report = (await rebuilt(gone.store)).report
    state = await state_at(gone.store, report.first_sequence)
    assert list(partition(state).extents.base_offsets) == [offset for offset, _ in flusher.acknowledged] == [0, 2, 4, 6]
    assert report.recovered_batches == 4


@in_virtual_time
async def test_a_gap_in_the_archive_ends_the_exact_part_and_is_reported() -> None:
    gone = Lost()
    async with rig("a", objects=gone.store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        flusher = Flusher(built, gone.store)
        for count in range(3):
            await flusher.produce(batch())
            await until(lambda count=count: len(gone.store.archived()) > count)  # type: ignore[misc]
    gone.store.damage(gone.store.archived()[1])
    rebuild = await rebuilt(gone.store)
    assert (rebuild.report.archive_objects, rebuild.report.unreached_archive) == (1, len(gone.store.archived()) - 3)
    assert "crc" in rebuild.report.damaged_archive[0]
    state = await state_at(gone.store, rebuild.report.first_sequence)
    assert partition(state).high_watermark == 3


@in_virtual_time
async def test_a_dry_run_reports_the_same_and_changes_nothing() -> None:
    gone = await lost()
    held = gone.store.contents()
    streams = FakeStreams()
    reported = (await rebuilt(gone.store, streams, is_dry_run=True)).report
    assert streams.held is None
    assert gone.store.contents() == held
    done = (await rebuilt(gone.store, streams)).report
    same = {"is_dry_run": False, "journal_created": NEW}
    assert msgspec.structs.replace(reported, **same) == done


@in_virtual_time
async def test_a_rebuild_interrupted_at_any_step_is_completed_by_the_next_one() -> None:
    gone = await lost()
    whole = gone.store.copy()
    streams = FakeStreams()
    streams.steps = whole.steps
    expected = (await rebuilt(whole, streams)).report.first_sequence
    steps = whole.steps.done
    assert steps > 10
    for break_before in range(steps):
        store, streams = gone.store.copy(), FakeStreams()
        streams.steps = store.steps
        store.steps.break_before = break_before
        with contextlib.suppress(Unavailable):  # after the last step there is none left to interrupt
            await rebuilt(store, streams)
            assert break_before == steps - 1
        store.steps.break_before = -1
        if (await marker(store)).created == NEW:
            with pytest.raises(Invalid, match=r"exists\. Nothing was changed"):
                await rebuilt(store, streams)
        else:
            await rebuilt(store, streams)
        state = await check_is_good(store, streams, expected)
        assert partition(state).high_watermark == 9


@in_virtual_time
async def test_without_the_objects_of_an_interrupted_rebuild_the_old_journal_can_be_used_again() -> None:
    """As the runbook has it."""
    gone = await lost()
    whole = gone.store.copy()
    first = (await rebuilt(whole)).report.first_sequence
    made = [journal_archive_key("", CLUSTER, first, first), *(snapshot_key("", CLUSTER, first - at) for at in (0, 1))]
    assert whole.steps.done > 5
    old = MemoryJournal(gone.journal)
    halted, usable = 0, gone.store
    for break_before in range(whole.steps.done):
        store = gone.store.copy()
        store.steps.break_before = break_before
        with contextlib.suppress(Unavailable):
            await rebuilt(store)
        if (await marker(store)).created == NEW:
            break
        store.steps.break_before = -1
        if made[0] in store.archived():
            halted += 1
            with pytest.raises(Halted, match=f"but entry {first} is already in its archive"):
                await check_journal_has_what_is_archived(old, store, CLUSTER)
        await store.delete(made)
        await check_journal_has_what_is_archived(old, store, CLUSTER)
        usable = store
    assert halted > 1
    async with rig(objects=usable) as built:
        built.store = gone.journal
        running = await built.start("a")
        assert partition(running.sequencer.replica.state).high_watermark == 9


@in_virtual_time
async def test_a_rebuilt_journal_can_be_lost_and_rebuilt_too() -> None:
    gone = await lost()
    first = (await rebuilt(gone.store)).report
    streams = FakeStreams()
    second = (await rebuilt(gone.store, streams)).report
    assert second.snapshot_sequence == first.first_sequence
    assert second.first_sequence > first.first_sequence + 1_000_000
    state = await check_is_good(gone.store, streams, second.first_sequence)
    assert partition(state).high_watermark == 9


@in_virtual_time
async def test_a_damaged_snapshot_falls_back_to_the_one_before_and_the_archive() -> None:
    gone = await lost()
    first = (await rebuilt(gone.store)).report.first_sequence
    gone.store.damage(gone.store.snapshots()[-1])
    streams = FakeStreams()
    report = (await rebuilt(gone.store, streams)).report
    assert (report.snapshot_sequence, report.archived_sequence, len(report.damaged_snapshots)) == (first - 1, first, 1)
    await check_is_good(gone.store, streams, report.first_sequence)


@in_virtual_time
async def test_an_existing_journal_is_never_replaced() -> None:
    gone = await lost()
    streams = FakeStreams()
    streams.held = MemoryJournalStore(OLD)
    with pytest.raises(Invalid, match="the journal of cluster test, made at 2026-01-01T00:00:00Z, exists"):
        await rebuilt(gone.store, streams)
    streams.held = MemoryJournalStore("2020-02-02T00:00:00Z")
    with pytest.raises(Invalid, match="but the object store names another"):
        await rebuilt(gone.store, streams)
    assert (await marker(gone.store)).created == OLD
    assert await list_snapshots(gone.store, CLUSTER) == []


@in_virtual_time
async def test_at_the_wrong_server_nothing_is_made_while_the_cluster_archives() -> None:
    store, streams = SteppedStore(), FakeStreams()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic(TOPIC)], deadline_s=5)
        await until(lambda: store.archived())
        await name_old_journal(store)
        for _ in range(3):  # even long after the last command
            await asyncio.sleep(100)
            with pytest.raises(Invalid, match=r"grew \d+ s ago.* stop all sequencers. Wait"):
                await rebuilt(store, streams, age_min_ms=ARCHIVE_AGE_MIN_MS)
    assert streams.held is None
    assert (await marker(store)).created == OLD
    await asyncio.sleep(ARCHIVE_AGE_MIN_MS / 1000)
    report = (await rebuilt(store, streams, age_min_ms=ARCHIVE_AGE_MIN_MS)).report
    await check_is_good(store, streams, report.first_sequence)


@in_virtual_time
async def test_a_rebuild_interrupted_after_archiving_can_continue_at_once() -> None:
    gone = await lost()
    streams = FakeStreams()
    await asyncio.sleep(ARCHIVE_AGE_MIN_MS / 1000)
    report = (await rebuilt(gone.store, streams, age_min_ms=ARCHIVE_AGE_MIN_MS)).report
    await gone.store.delete([marker_key(CLUSTER)])
    await name_old_journal(gone.store)
    await rebuilt(gone.store, streams, age_min_ms=ARCHIVE_AGE_MIN_MS)
    await check_is_good(gone.store, streams, report.first_sequence)


@in_virtual_time
async def test_a_used_rebuilt_journal_without_its_marker_stays_and_the_marker_is_reported() -> None:
    gone = await lost()
    streams = FakeStreams()
    await rebuilt(gone.store, streams)
    named = await gone.store.get(marker_key(CLUSTER))
    await gone.store.delete([marker_key(CLUSTER), *gone.store.snapshots()[:1]])
    assert streams.held is not None
    streams.held.last_sequence += 1000
    with pytest.raises(Invalid, match="was used since, up to entry") as reported:
        await rebuilt(gone.store, streams)
    assert named.decode() in str(reported.value)


@in_virtual_time
async def test_a_rebuild_behind_the_stores_entries_fails_with_that_reason() -> None:
    gone = await lost()
    streams = FakeStreams()
    await rebuilt(gone.store, streams)
    await gone.store.delete([marker_key(CLUSTER), *gone.store.snapshots()[:1]])
    with pytest.raises(Invalid, match="the store has journal entries up to"):
        await rebuilt(gone.store, streams)


@in_virtual_time
async def test_of_two_rebuilds_at_once_one_makes_the_journal() -> None:
    gone = await lost()
    streams = FakeStreams()
    ends = await asyncio.gather(*(rebuilt(gone.store, streams) for _ in range(2)), return_exceptions=True)
    assert all(isinstance(end, Rebuild | Conflict | Invalid) for end in ends), ends
    assert any(isinstance(end, Rebuild) for end in ends)
    await check_is_good(gone.store, streams, streams.began)


async def test_from_an_empty_store_nothing_is_made() -> None:
    streams = FakeStreams()
    with pytest.raises(Invalid, match="no good snapshot of cluster test, and no archive from entry 1 on"):
        await rebuilt(SteppedStore(), streams)
    assert streams.held is None
