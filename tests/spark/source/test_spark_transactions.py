"""Transactions in tables and in key compaction: committed records appear once, and aborted records never.

Merges and key compaction run in between, on the state machine itself and without a Spark session.
"""

import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from penstock.contracts.queries.compaction import LogsQuery
from penstock.kafkawire.records import Record, is_control, read_batch_header
from penstock.objectstore import open_store
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges
from penstock.spark.source.catalog import Catalog, run_apart
from penstock.spark.source.columns import Columns
from penstock.spark.source.config import read_source_config
from penstock.spark.source.filters import Scope
from penstock.spark.source.planning import Planner, replanned
from penstock.spark.source.reading import Range, Replan, read_split
from penstock.spark.source.splits import Split
from penstock_compactor.jobs.values import JobResult
from penstock_compactor.planning.planner import Choice, Kind
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from tests.unit.compactor.compactor_lake import CLUSTER
from tests.unit.compactor.transaction_world import Log, TransactionWorld, random_step

pytestmark = pytest.mark.spark

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
PAIRS = [(b"a", b"1"), (b"b", b"2")]

Row = tuple[int, bytes | None, bytes | None]  # offset, key, value


class World(TransactionWorld):
    """A world whose key compaction runs in this process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.runner_of_keys = self.runner()

    async def compact_by_key(self) -> list[JobResult]:
        keys = self.keys(self.runner_of_keys)
        views = list(queries.metadata(self.machine.state, queries.MetadataQuery(0, None)).topics)
        return [await keys.compact(job) for job in await keys.find_jobs(views, ())]

    async def merge(self, *levels: int) -> JobResult:
        segments = [each for each in self.segments() if each.level in levels]
        return await self.merging(runner=self.runner_of_keys).merge(Choice(Kind.MIXED, segments), ())


class Source:
    """The source without a session: plans from the state machine, bytes from the folder."""

    def __init__(self, world: World, **options: str) -> None:
        self._world = world
        self.options = {"topics": "t1", "nats": "nats://none", "store": world.place.url, "cluster": CLUSTER, **options}

    async def rows(self, log: Log, **options: str) -> list[Row]:
        return [row for split in await self.splits(**options) for row in self.read(split, log[1])]

    async def splits(self, **options: str) -> list[Split]:
        config = read_source_config({**self.options, **options}, environ={})
        store = await open_store(self._world.place.url)
        try:
            planner = Planner(config, Catalog(self._world.machine), store)  # type: ignore[arg-type]
            return await planner.batch(Scope())
        finally:
            await store.close()

    def read(self, split: Split, partition: int, replan: Replan | None = None) -> list[Row]:
        columns = Columns(("partition", "offset", "key", "value"), group_bytes=100)
        with StoreRanges(self._world.place.url) as ranges:

            def stream(wanted: Sequence[Range]) -> Iterator[memoryview]:
                return (fragment.data for fragment in ranges.stream(wanted))

            found = [row for batch in read_split(split, columns, stream, replan) for row in batch.to_pylist()]
        return [(row["offset"], row["key"], row["value"]) for row in found if row["partition"] == partition]


def rows(records: Sequence[tuple[int, Record]]) -> list[Row]:
    return [(offset, record.key, record.value) for offset, record in records]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def three_transactions(world: World, log: Log) -> None:
    """Write a committed, an aborted and an open transaction, and records without a transaction."""
    committing, aborting, waiting = (world.begin(name) for name in ("c", "a", "w"))
    world.write((log, None, PAIRS), (log, committing, [(b"a", b"committed")]))
    world.write((log, aborting, [(b"b", b"aborted")]), (log, committing, [(b"c", b"committed")]))
    world.end(aborting, committed=False)
    world.end(committing, committed=True)
    world.write((log, waiting, [(b"a", b"open")]), (log, None, [(b"b", b"after it")]))


async def test_a_table_has_the_committed_records_before_the_first_open_transaction(world: World) -> None:
    log = world.create_topic(1), 0
    three_transactions(world, log)
    source = Source(world)
    committed = [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", b"committed"), (4, b"c", b"committed")]
    assert await source.rows(log) == committed == rows(world.expected(log))
    everything = [*committed[:3], (3, b"b", b"aborted"), committed[3], (7, b"a", b"open"), (8, b"b", b"after it")]
    assert await source.rows(log, isolation="read_uncommitted") == everything
    await world.merge(0)
    assert await source.rows(log) == committed
    left = [*committed, *everything[-2:]]
    assert await source.rows(log, isolation="read_uncommitted") == left, "open transactions stay"


async def test_aborted_records_are_removed_by_a_merge(world: World) -> None:
    log = world.create_topic(1), 0
    aborting = world.begin("a")
    world.write((log, None, PAIRS), (log, aborting, PAIRS))
    world.end(aborting, committed=False)
    assert len(await Source(world).rows(log, isolation="read_uncommitted")) == 4
    await world.merge(0)
    for isolation in ("read_committed", "read_uncommitted"):
        assert await Source(world).rows(log, isolation=isolation) == [(0, b"a", b"1"), (1, b"b", b"2")]


async def test_a_time_leads_to_a_record_and_to_no_marker(world: World) -> None:
    """Markers have the time of the clock, but the records here are older."""
    log = world.create_topic(1), 0
    writer = world.begin("w")
    for _ in range(2):
        world.write((log, writer, PAIRS))
        world.end(writer, committed=True)
    await world.merge(0)
    world.write((log, None, [(b"new", b"1")]))
    newest_ms = max(record.timestamp for _, record in world.expected(log))
    assert [row[0] for row in await Source(world).rows(log, startingTimestamp=str(newest_ms))] == [1, 3, 4, 6]
    assert await Source(world).rows(log, startingTimestamp=str(newest_ms + 1)) == []


async def test_more_aborted_transactions_than_fit_in_one_plan_are_all_known(world: World) -> None:
    world.machine.state.limits = Limits(answers=AnswerLimits(plan_aborted_max=5))
    log, other = ((topic_id := world.create_topic(1, partitions=2)), 0), (topic_id, 1)
    producers = [world.begin(f"p{number}") for number in range(4)]
    chance = random.Random(5)
    for _ in range(12):
        world.write(*((each, producer, PAIRS) for each in (log, other) for producer in producers))
        for producer in chance.sample(producers, 3):
            world.end(producer, committed=False)
    for producer in producers:
        world.end(producer, committed=True)
    for each in (log, other):
        assert await Source(world).rows(each) == rows(world.expected(each))
    await world.merge(0)
    assert await Source(world).rows(log) == rows(world.expected(log)), (
        "a compactor knows the end of its known aborted transactions"
    )


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_a_new_plan_for_a_task_has_the_aborted_transactions_again(world: World, isolation: str) -> None:
    """The transaction was aborted after the end of the split, so a read of uncommitted records still has it."""

    @contextlib.asynccontextmanager
    async def opened_catalog(_address: object) -> AsyncIterator[Catalog]:
        yield Catalog(world.machine)  # type: ignore[arg-type]

    log = world.create_topic(1), 0
    aborting, waiting = world.begin("a"), world.begin("w")
    world.write((log, None, PAIRS), (log, waiting, PAIRS), (log, aborting, [(b"c", b"3")]))
    world.end(aborting, committed=False)
    world.write((log, None, PAIRS))
    source = Source(world)
    expected = await source.rows(log, isolation=isolation)
    assert len(expected) == (2 if isolation == "read_committed" else 7)
    (split,) = await source.splits(isolation=isolation)
    old = world.segments()
    await world.merge(0)
    with StoreRanges(world.place.url) as ranges:
        keys = [segment_key("", CLUSTER, 0, each.segment_id) for each in old]
        ranges.call(lambda store: store.delete(keys))
    address = read_source_config(source.options, environ={}).address
    assert source.read(split, 0, lambda rest: run_apart(replanned(address, rest, opened_catalog))) == expected
    world.end(waiting, committed=True)
    later = await source.rows(log, isolation=isolation)
    assert later == (rows(world.expected(log)) if isolation == "read_committed" else expected)


@pytest.mark.parametrize("seed", range(6))
async def test_tables_equal_the_model_after_any_merges(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(tmp_path)
    topic_id = world.create_topic(1, partitions=2)
    logs = [(topic_id, 0), (topic_id, 1)]
    producers = [world.begin(f"p{number}") for number in range(3)]
    for log in logs:
        world.write((log, None, PAIRS))
    for _ in range(5):
        for _ in range(chance.randint(1, 8)):
            random_step(world, chance, logs, producers)
        if chance.random() < 0.7:
            await world.merge(*chance.choice([(0,), (0, 1), (0, 1, 2)]))
        for log in logs:
            expected = rows(world.expected(log))
            assert await Source(world).rows(log) == expected
            first = chance.randrange(world.stable_offset(log) + 1)
            starting = f'{{"t1": {{"{log[1]}": {first}}}}}'
            assert await Source(world).rows(log, startingOffsets=starting) == [
                row for row in expected if row[0] >= first
            ]


async def test_key_compaction_counts_committed_records_and_stops_at_open_transactions(world: World) -> None:
    log = world.create_topic(1, **COMPACTED), 0
    three_transactions(world, log)
    (ended,) = await world.compact_by_key()
    assert ended.is_complete
    left = [(1, b"b", b"2"), (2, b"a", b"committed"), (4, b"c", b"committed")]
    assert await Source(world).rows(log) == left
    (view,) = queries.logs(world.machine.state, LogsQuery(0, [log[0]])).logs
    assert (view.cleaned_offset, view.last_stable_offset) == (7, 7)
    headers = [read_batch_header(batch) for batch in world.batches_of(log)[0]]
    assert not any(is_control(header) for header in headers), "no reader needs them"
    assert world.machine.state.aborted_count == 0
    assert await Source(world).rows(log, isolation="read_uncommitted") == [
        *left,
        (7, b"a", b"open"),
        (8, b"b", b"after it"),
    ]


async def test_an_open_transaction_delays_key_compaction_until_it_ends(world: World) -> None:
    log = world.create_topic(1, **COMPACTED), 0
    waiting = world.begin("w")
    world.write((log, waiting, [(b"a", b"1")]))
    world.write((log, None, [(b"a", b"2")]), (log, None, [(b"a", b"3")]))
    assert await world.compact_by_key() == []
    world.end(waiting, committed=True)
    (ended,) = await world.compact_by_key()
    assert ended.is_complete
    assert await Source(world).rows(log) == [(2, b"a", b"3")]


async def test_an_aborted_tombstone_deletes_nothing_but_a_later_one_does(world: World) -> None:
    log = world.create_topic(1, **COMPACTED, **{"delete.retention.ms": "0"}), 0
    aborting = world.begin("a")
    world.write((log, None, [(b"a", b"1"), (b"b", b"1")]), (log, aborting, [(b"a", None)]))
    world.end(aborting, committed=False)
    world.write((log, None, [(b"b", None)]))
    await world.compact_by_key()
    world.machine.pass_time(1_000)
    await world.compact_by_key()
    assert await Source(world).rows(log) == [(0, b"a", b"1")]


async def test_markers_alone_are_no_reason_to_compact(world: World) -> None:
    log = world.create_topic(1, **COMPACTED), 0
    writer = world.begin("w")
    world.write((log, writer, PAIRS))
    world.end(writer, committed=True)
    assert len(await world.compact_by_key()) == 1
    assert [extent.last_offset for extent in world.plan(log).extents] == [2]
    world.write((log, writer, PAIRS))
    (ended,) = await world.compact_by_key() or [None]
    assert ended is None, "that transaction is open"
    world.end(writer, committed=True)
    assert len(await world.compact_by_key()) == 1
    assert await world.compact_by_key() == []


@pytest.mark.parametrize("seed", range(6))
async def test_the_last_committed_record_of_each_key_is_kept(tmp_path: Path, seed: int) -> None:
    """Compared with a dictionary, with merges in between; readers of committed records agree in every state."""
    chance = random.Random(seed)
    world = World(tmp_path)
    topic_id = world.create_topic(1, partitions=2, **COMPACTED)
    logs = [(topic_id, 0), (topic_id, 1)]
    producers = [world.begin(f"p{number}") for number in range(3)]
    for log in logs:
        world.write((log, None, PAIRS))
    for _ in range(5):
        for _ in range(chance.randint(1, 8)):
            random_step(world, chance, logs, producers)
        if chance.random() < 0.4:
            await world.merge(0)
        assert all(ended.is_complete for ended in await world.compact_by_key())
        for log in logs:
            read = await Source(world).rows(log)
            assert read == rows(world.read_committed(log)), "clients see the same"
            assert set(read) <= set(rows(world.expected(log)))
            assert set(rows(world.latest(log))) <= set(read)
    for producer in producers:
        world.end(producer, committed=chance.random() < 0.5)
    await world.compact_by_key()
    for log in logs:
        assert await Source(world).rows(log) == rows(world.latest(log))
    assert world.machine.state.aborted_count == 0
