"""Merges of logs with transactions: aborted records are removed, and read_committed clients lose no record."""

import random
from pathlib import Path

import pytest

from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.ids import TopicId
from penstock.kafkawire.records import CRC_START, is_control, read_batch_header
from penstock.segment import read_compacted_index
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges
from penstock_compactor.jobs.values import JobResult
from penstock_compactor.planning.planner import Choice, Kind, PlanLimits
from tests.unit.compactor.compactor_lake import CLUSTER
from tests.unit.compactor.transaction_world import Log, TransactionWorld, random_step

PAIRS = [(b"a", b"1"), (b"b", b"2")]


@pytest.fixture
def world(tmp_path: Path) -> TransactionWorld:
    return TransactionWorld(tmp_path)


@pytest.fixture
def log(world: TransactionWorld) -> Log:
    return world.create_topic(1), 0


async def merge(world: TransactionWorld, *levels: int, kind: Kind = Kind.FLUSHED) -> JobResult:
    """Merge all segments of these levels."""
    segments = [each for each in world.segments() if each.level in levels]
    ended = await world.merging().merge(Choice(kind, segments), ())
    assert not ended.failures
    return ended


def headers(world: TransactionWorld, log: Log) -> list[tuple[int, int, int, bool]]:
    """For each batch: the first and the last offset, the number of records, and whether it is a control batch."""
    found = [read_batch_header(batch) for batch in world.batches_of(log)[0]]
    return [
        (each.base_offset, each.base_offset + each.last_offset_delta, each.record_count, is_control(each))
        for each in found
    ]


def ends(world: TransactionWorld, log: Log) -> list[tuple[int, int]]:
    return [(each.base_offset, each.last_offset) for each in world.plan(log).extents]


async def test_markers_are_stored_among_the_records_around_them(world: TransactionWorld, log: Log) -> None:
    writer = world.begin("w")
    for _ in range(3):
        world.write((log, writer, PAIRS))
        world.end(writer, committed=True)
    before = world.batches_of(log)[0]
    ended = await merge(world, 0)
    assert (ended.accepted, ended.rejected) == (1, 0)
    assert ends(world, log) == [(0, 8)]
    assert world.plan(log).markers == []
    after = world.batches_of(log)[0]
    assert [batch[CRC_START:] for batch in after] == [batch[CRC_START:] for batch in before]
    assert world.read_committed(log) == world.expected(log)


async def test_aborted_records_are_removed_with_their_marker(world: TransactionWorld, log: Log) -> None:
    writer = world.begin("w")
    world.write((log, writer, PAIRS))
    world.end(writer, committed=False)
    world.write((log, None, PAIRS))
    world.write((log, writer, PAIRS))
    world.end(writer, committed=True)
    assert len(world.plan(log).aborted) == 1
    await merge(world, 0)
    assert headers(world, log) == [(3, 4, 2, False), (5, 6, 2, False), (7, 7, 1, True)]
    assert (world.plan(log).aborted, world.machine.state.aborted_count) == ([], 0)
    assert ends(world, log) == [(0, 7)]
    assert world.read_committed(log) == world.expected(log)


async def test_an_empty_batch_holds_the_last_offset_when_the_end_of_a_run_is_removed(
    world: TransactionWorld, log: Log
) -> None:
    writer = world.begin("w")
    world.write((log, writer, PAIRS))
    world.end(writer, committed=False)
    await merge(world, 0)
    assert headers(world, log) == [(2, 2, 0, False)]
    assert world.read_committed(log) == []
    world.write((log, None, PAIRS))
    await merge(world, 0, 1)
    assert headers(world, log) == [(2, 2, 0, False), (3, 4, 2, False)]
    assert world.read_committed(log) == world.expected(log) != []


async def test_records_after_the_first_record_of_an_open_transaction_stay(world: TransactionWorld, log: Log) -> None:
    aborting, waiting = world.begin("a"), world.begin("b")
    world.write((log, aborting, PAIRS))
    world.write((log, waiting, PAIRS))
    world.write((log, aborting, PAIRS))
    world.end(aborting, committed=False)
    before = world.batches_of(log)[0]
    await merge(world, 0)
    after = world.batches_of(log)[0]
    assert [batch[CRC_START:] for batch in after[1:]] == [batch[CRC_START:] for batch in before[1:]]
    assert headers(world, log)[0] == (0, 1, 0, False), "the transaction before the open one has ended"
    assert ends(world, log) == [(0, 1), (2, 6)]
    world.end(waiting, committed=False)
    assert world.read_committed(log) == []
    await merge(world, 1)
    assert headers(world, log) == [(0, 1, 0, False), (7, 7, 0, False)]
    assert world.machine.state.aborted_count == 0


async def test_a_marker_stays_while_records_before_it_may_exist(world: TransactionWorld, log: Log) -> None:
    """The records are in a segment that this job does not merge."""
    writer = world.begin("w")
    world.write((log, writer, PAIRS))
    world.write((log, writer, PAIRS))
    world.end(writer, committed=False)
    world.write((log, writer, PAIRS))
    world.end(writer, committed=True)
    first, *others = world.segments()
    await world.merging().merge(Choice(Kind.FLUSHED, others), ())
    assert headers(world, log) == [(0, 1, 2, False), (4, 4, 1, True), (5, 6, 2, False), (7, 7, 1, True)]
    assert world.read_committed(log) == world.expected(log)
    await world.merging().merge(Choice(Kind.FLUSHED, [first]), ())
    assert headers(world, log)[0] == (0, 1, 0, False)
    assert world.read_committed(log) == world.expected(log)
    await merge(world, 1)
    assert world.read_committed(log) == world.expected(log)
    assert [header[3] for header in headers(world, log)].count(True) == 1, (
        "only the marker of the committed transaction stays"
    )
    assert world.machine.state.aborted_count == 0


async def test_times_and_counts_of_a_run_are_those_of_its_records(world: TransactionWorld, log: Log) -> None:
    writer = world.begin("w")
    world.write((log, writer, PAIRS))
    world.end(writer, committed=True)
    await merge(world, 0)
    (extent,) = world.plan(log).extents
    key = segment_key("", CLUSTER, 1, extent.segment.segment_id)
    with StoreRanges(world.place.url) as ranges:
        index = read_compacted_index(ranges.call(lambda store: store.get(key)))
    (run,) = index.runs
    newest = max(record.timestamp for _, record in world.expected(log))
    assert (run.max_timestamp, extent.max_timestamp) == (newest, newest)
    assert (run.record_count, run.batch_count) == (2, 2)


async def test_markers_count_as_extents_that_a_command_replaces(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, PlanLimits(job_extents_max=4))
    log = world.create_topic(1), 0
    writer = world.begin("w")
    for _ in range(5):
        world.write((log, writer, PAIRS))
        world.end(writer, committed=True)
    ended = await merge(world, 0)
    assert (ended.accepted, ended.rejected) == (3, 0)
    assert ends(world, log) == [(0, 5), (6, 11), (12, 14)]
    assert world.read_committed(log) == world.expected(log)


async def test_no_job_lease_names_the_segment_id_of_markers(world: TransactionWorld, log: Log) -> None:
    writer = world.begin("w")
    world.write((log, writer, PAIRS))
    world.end(writer, committed=True)
    await merge(world, 0)
    named = [each for command in world.machine.sent for each in getattr(command, "segment_ids", ())]
    assert named and NO_SEGMENT_ID not in named


@pytest.mark.parametrize("seed", range(8))
async def test_read_committed_clients_read_the_same_before_and_after_every_merge(tmp_path: Path, seed: int) -> None:
    """They read the records that the model expects, from the log's start and from a random offset."""
    chance = random.Random(seed)
    world = TransactionWorld(tmp_path)
    topics: list[TopicId] = [world.create_topic(1, partitions=2), world.create_topic(2)]
    logs = [(topics[0], 0), (topics[0], 1), (topics[1], 0)]
    producers = [world.begin(f"p{number}") for number in range(3)]
    for log in logs:
        world.write((log, None, PAIRS))
    for _ in range(8):
        for _ in range(chance.randint(1, 8)):
            random_step(world, chance, logs, producers)
        levels = chance.choice([(0,), (0,), (0, 1), (1,), (1, 2)])
        segments = [each for each in world.segments() if each.level in levels and chance.random() < 0.8]
        if segments:
            kind = {0: Kind.FLUSHED, 1: Kind.MIXED}[levels[0]]
            assert (await world.merging().merge(Choice(kind, segments), ())).is_complete
        for log in logs:
            check_reads(world, log, chance)
    for producer in producers:
        world.end(producer, committed=False)
    await merge(world, 0, 1, 2, kind=Kind.MIXED)
    for log in logs:
        check_reads(world, log, chance)
        assert len(world.plan(log).extents) == 1
        kept = [header for header in headers(world, log) if header[2] and not header[3]]
        assert sum(header[2] for header in kept) == len(world.expected(log)), "aborted records are left"
    assert world.machine.state.aborted_count == 0


def check_reads(world: TransactionWorld, log: Log, chance: random.Random) -> None:
    expected = world.expected(log)
    assert world.plan(log).last_stable_offset == world.stable_offset(log)
    assert world.read_committed(log) == expected
    offset = chance.randrange(len(world.logs[log]) + 1)
    assert world.read_committed(log, offset) == [each for each in expected if each[0] >= offset]
