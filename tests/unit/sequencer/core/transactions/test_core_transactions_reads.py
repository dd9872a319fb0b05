"""Reads of transactional logs: how far a log is decided, which transactions were aborted, and markers in extents."""

from typing import Any

import msgspec
import pytest

from penstock.contracts.batches import NO_SEGMENT_ID, AbortedTransaction
from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DeleteTopic,
    ExpireLogs,
    LogOffset,
    LogRef,
    PerItem,
    ReplaceExtents,
)
from penstock.contracts.queries.compaction import LogsQuery, LogTransactions, SegmentExtentsQuery
from penstock.contracts.queries.janitor import UsageQuery
from penstock.contracts.queries.log import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetOf, OffsetsQuery
from penstock.contracts.queries.transactions import (
    DescribeTransactionsQuery,
    PartitionProducers,
    ProducersQuery,
    ProducerView,
    TransactionsQuery,
    TransactionTopic,
    TransactionView,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, TransactionLimits
from tests.unit.sequencer.core.core_transactions import TIMEOUT_MS, Writer
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id, transaction_world


@pytest.fixture
def world() -> World:
    return transaction_world()


def transact(world: World, name: str = "tx", *, committed: bool, records: int = 1) -> Writer:
    """One transaction of one batch in partition 0."""
    writer = world.transactions.init(name)
    world.transactions.write(writer, records=records, adds=True)
    world.transactions.end(writer, committed=committed)
    return writer


def ends(world: World) -> list[tuple[int, int]]:
    return [(each.base_offset, each.last_offset) for each in world.transactions.plan().extents]


def test_the_log_is_decided_up_to_the_oldest_open_transaction(world: World) -> None:
    one, other = world.transactions.init("one"), world.transactions.init("other")
    world.produce(batch())
    world.transactions.write(one, adds=True)
    world.transactions.write(other, adds=True)
    world.produce(batch())
    world.transactions.write(one)
    assert (world.transactions.stable(), world.transactions.plan().high_watermark) == (1, 5)
    world.transactions.end(one)
    assert world.transactions.stable() == 2
    world.transactions.end(other)
    assert (world.transactions.stable(), world.transactions.plan().high_watermark) == (7, 7)


def test_a_marker_is_an_extent_without_bytes_and_has_the_transactions_result(world: World) -> None:
    writer = transact(world, committed=False, records=2)
    plan = world.transactions.plan()
    marker = plan.extents[1]
    assert (marker.base_offset, marker.last_offset, marker.length, marker.max_timestamp) == (2, 2, 0, -1)
    assert marker.segment.segment_id == NO_SEGMENT_ID
    assert [(each.offset, each.producer_id, each.committed) for each in plan.markers] == [
        (2, writer.producer_id, False)
    ]
    assert plan.aborted == [AbortedTransaction(writer.producer_id, 0, 2)]
    assert plan.aborted_end_offset == 3


def test_a_plan_that_starts_after_an_aborted_transaction_does_not_name_it(world: World) -> None:
    transact(world, committed=False)
    world.produce(batch())
    assert world.transactions.plan(offset=1).aborted
    assert not world.transactions.plan(offset=2).aborted
    assert not world.transactions.plan(offset=2).markers


def test_a_plan_that_ends_before_an_aborted_transaction_does_not_name_it(world: World) -> None:
    world.produce(batch(length=500))
    transact(world, committed=False)
    assert not world.transactions.plan(bytes_max=100).aborted
    assert world.transactions.plan(bytes_max=501).aborted


def test_a_transaction_aborted_late_is_named_after_others_that_were_aborted_before(world: World) -> None:
    long = world.transactions.init("long")
    world.transactions.write(long, adds=True)
    short = [transact(world, f"short-{number}", committed=False) for number in range(3)]
    world.transactions.end(long, committed=False)
    producers = [each.producer_id for each in world.transactions.plan(bytes_max=1).aborted]
    assert producers == [long.producer_id]
    assert [each.producer_id for each in world.transactions.plan().aborted] == [
        each.producer_id for each in (*short, long)
    ]


def test_a_plan_with_too_many_aborted_transactions_has_the_offset_up_to_which_they_are_complete(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(plan_aborted_max=2)))
    for number in range(4):
        transact(world, f"tx-{number}", committed=False)
    plan = world.transactions.plan()
    assert [each.first_offset for each in plan.aborted] == [0, 2]
    assert plan.aborted_end_offset == 4
    plan = world.transactions.plan(offset=4)
    assert [each.first_offset for each in plan.aborted] == [4, 6]
    assert plan.aborted_end_offset == 8


def test_a_partition_without_transactions_reports_none(world: World) -> None:
    world.produce(batch())
    plan = world.transactions.plan()
    assert (plan.markers, plan.aborted, plan.aborted_end_offset) == ([], [], -1)


def offset_of(world: World, timestamp: int) -> Any:
    return queries.offsets(world.state, OffsetsQuery(0, [OffsetOf(topic_id(1), 0, timestamp)])).partitions[0]


def test_no_timestamp_search_ends_at_a_marker(world: World) -> None:
    transact(world, committed=True)
    world.wait(5_000)
    transact(world, committed=True)
    world.produce(batch(timestamp=START_MS + 9_000))
    assert offset_of(world, START_MS + 1).extent.base_offset == 4
    assert offset_of(world, MAX_TIMESTAMP).offset == 4
    assert (offset_of(world, EARLIEST).offset, offset_of(world, LATEST).offset) == (0, 5)
    assert offset_of(world, START_MS + 10_000).extent is None


def test_offset_queries_report_the_last_stable_offset(world: World) -> None:
    transact(world, committed=True)
    world.transactions.write(world.transactions.init("open"), adds=True)
    for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, START_MS, START_MS + 1):
        assert offset_of(world, timestamp).last_stable_offset == 2
    assert offset_of(world, LATEST).offset == 3


def test_a_log_of_markers_only_has_no_latest_timestamp(world: World) -> None:
    transact(world, committed=True)
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 1)]))
    assert [each.base_offset for each in world.transactions.plan(offset=1).extents] == [1]
    found = offset_of(world, MAX_TIMESTAMP)
    assert (found.offset, found.extent) == (-1, None)


def test_markers_count_as_extents_and_belong_to_no_segment(world: World) -> None:
    transact(world, committed=True)
    usage = queries.usage(world.state, UsageQuery(0))
    assert (usage.extents, usage.segments, usage.live_bytes) == (2, 1, 100)
    placed = queries.segment_extents(world.state, SegmentExtentsQuery(0, [0])).extents
    assert [each.last_offset for each in placed[0]] == [0]


def test_records_of_an_open_transaction_may_be_deleted_up_to_the_high_watermark(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.write(writer, records=3, adds=True)
    outcome = world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 2)]))
    assert outcome.logs[0].rejection == Rejection.NONE
    assert world.transactions.stable() == 2
    world.transactions.end(writer, committed=False)
    assert [each.first_offset for each in world.transactions.plan(offset=2).aborted] == [0]


def test_trimmed_offsets_are_removed_with_their_markers_and_aborted_transactions(
    world: World,
) -> None:
    for number in range(3):
        transact(world, f"tx-{number}", committed=False)
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 3)]))
    known = world.partition().transactions
    assert known is not None
    assert known.marker_count == known.aborted_count == world.state.aborted_count == 2
    assert [each.last_offset for each in world.transactions.plan(offset=3).aborted] == [3, 5]


def expire(world: World, **configs: str) -> int:
    changes = [ConfigChange(name.replace("_", "."), ConfigOperation.SET, value) for name, value in configs.items()]
    world.do(AlterConfigs(world.now_ms, "t", changes))
    return int(world.do(ExpireLogs(world.now_ms, [LogRef(topic_id(1), 0)])).logs[0].log_start_offset)


def test_retention_removes_markers_with_the_records_before_them(world: World) -> None:
    transact(world, committed=True)
    world.wait(10_000)
    transact(world, committed=True)
    world.wait(5_000)
    world.produce(batch(timestamp=world.now_ms))
    assert expire(world, retention_ms="7000") == 3  # the last marker is as old as the end of its transaction
    assert world.partition().size_bytes == 100


def test_retention_stops_at_an_open_transaction(world: World) -> None:
    transact(world, committed=True)
    writer = world.transactions.init("open")
    world.transactions.write(writer, adds=True)
    world.wait(TIMEOUT_MS - 1)
    assert expire(world, retention_ms="1000") == 2
    assert expire(world, retention_bytes="0") == 2
    world.wait(1)
    world.wait(1_001)
    assert expire(world) == 4


def test_a_topic_is_deleted_with_its_markers(world: World) -> None:
    transact(world, committed=False)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert (world.state.extent_count, world.state.aborted_count) == (0, 0)


def merged(world: World, first: int, end: int, **more: Any) -> tuple[ReplaceExtents, Any]:
    job = world.job((1, 0, first, end), **more)
    return job, world.do(job)


def test_a_compaction_stores_markers_with_the_records_around_them(world: World) -> None:
    transact(world, "one", committed=False)
    transact(world, "two", committed=True)
    job, outcome = merged(world, 0, 3)
    assert NO_SEGMENT_ID in job.inputs
    assert outcome == PerItem([Rejection.NONE])
    assert ends(world) == [(0, 2), (3, 3)]
    plan = world.transactions.plan()
    assert [each.offset for each in plan.markers] == [3]
    assert [each.last_offset for each in plan.aborted] == [1], "its records still exist"


def test_a_compaction_without_a_marker_is_rejected(world: World) -> None:
    transact(world, "one", committed=True)
    transact(world, "two", committed=True)
    job = world.job((1, 0, 0, 3))
    (run,) = job.runs
    marker = job.inputs.index(NO_SEGMENT_ID)
    pairs = zip(run.inputs[::2], run.inputs[1::2], strict=True)
    inputs = [number for pair in pairs if pair[0] != marker for number in pair]
    outcome = world.do(msgspec.structs.replace(job, runs=[msgspec.structs.replace(run, inputs=inputs)]))
    assert outcome == PerItem([Rejection.EXTENTS_CHANGED])


def aborted(world: World) -> list[tuple[int, int]]:
    assert world.partition().transactions is not None
    assert world.partition().transactions.aborted_count == world.state.aborted_count  # type: ignore[union-attr]
    return [(each.first_offset, each.last_offset) for each in world.transactions.plan().aborted]


def test_aborted_transactions_that_a_compaction_removed_are_removed_from_the_state(world: World) -> None:
    for name in ("one", "two", "three"):
        transact(world, name, committed=False)
    assert aborted(world) == [(0, 1), (2, 3), (4, 5)]
    assert merged(world, 2, 4)[1] == PerItem([Rejection.NONE])
    assert aborted(world) == [(0, 1), (2, 3), (4, 5)], "a merge without that flag has removed nothing"
    assert merged(world, 2, 3, without_aborted=True)[1] == PerItem([Rejection.NONE])
    assert aborted(world) == [(0, 1), (4, 5)]
    assert world.transactions.plan(offset=2, bytes_max=1).aborted_end_offset == 4, (
        "readers still learn that the list is complete"
    )


def test_an_aborted_transaction_is_removed_only_with_one_extent_that_covers_it(world: World) -> None:
    """Until then readers may hold old extents of one part and new extents of the other."""
    long, other = world.transactions.init("long"), world.transactions.init("other")
    for _ in range(3):
        world.transactions.write(long, adds=True)
    world.transactions.write(other, adds=True)
    world.transactions.end(other, committed=False)
    world.transactions.end(long, committed=False)
    assert aborted(world) == [(3, 4), (0, 5)]
    merged(world, 2, 6, without_aborted=True)
    assert aborted(world) == [(0, 5)]
    merged(world, 0, 2, without_aborted=True)
    assert ends(world) == [(0, 1), (2, 5)]
    assert aborted(world) == [(0, 5)]
    merged(world, 0, 2, without_aborted=True)
    assert aborted(world) == []


def test_undecided_records_cannot_be_removed(world: World) -> None:
    transact(world, "one", committed=False)
    writer = world.transactions.init("open")
    world.transactions.write(writer, adds=True)
    assert merged(world, 0, 3, without_aborted=True)[1] == PerItem([Rejection.EXTENTS_CHANGED])
    assert aborted(world) == [(0, 1)]
    assert merged(world, 0, 2, without_aborted=True)[1] == PerItem([Rejection.NONE])
    assert aborted(world) == []


def transactions_of(world: World, *rows: int) -> list[LogTransactions]:
    view = queries.segment_extents(world.state, SegmentExtentsQuery(0, list(rows)))
    assert len(view.transactions) == len(view.extents) == len(rows)
    return [each for of_segment in view.transactions for each in of_segment]


def test_compactors_get_markers_after_the_extents_and_aborted_transactions(world: World) -> None:
    world.produce(batch())
    assert transactions_of(world, 0) == [], "the partition has never had a transaction"
    one, two = world.transactions.init("one"), world.transactions.init("two")
    world.transactions.write(one, adds=True)
    world.transactions.write(two, adds=True)
    world.transactions.end(one, committed=False)
    world.transactions.end(two)
    world.transactions.write(two, adds=True)
    (plain,) = transactions_of(world, 0)
    assert (plain.topic_id, plain.partition, plain.decided_offset) == (topic_id(1), 0, 5)
    assert (plain.markers, plain.aborted) == ([], [])
    (of_one,) = transactions_of(world, 1)
    assert (of_one.markers, of_one.aborted) == ([], [AbortedTransaction(one.producer_id, 1, 3)])
    (of_two,) = transactions_of(world, 2)
    assert [(each.offset, each.committed) for each in of_two.markers] == [(3, False), (4, True)]
    # The extent lies between the first record of a transaction and its marker.
    assert of_two.aborted == [AbortedTransaction(one.producer_id, 1, 3)]
    assert transactions_of(world, 3)[0].decided_offset == 5
    merged(world, 1, 4)
    (after,) = transactions_of(world, 4)
    assert [each.offset for each in after.markers] == [4], "the other marker is stored"


def test_compactors_get_a_limited_number_of_transactions_and_their_end_offset(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(plan_aborted_max=2, extents_listed_max=3)))
    for number in range(4):
        transact(world, f"tx-{number}", committed=False)
    writers = [world.transactions.init(f"open-{number}") for number in range(5)]
    for each in writers:
        world.transactions.write(each, adds=True)
    for each in writers:
        world.transactions.end(each)
    merged(world, 0, 13)
    (found,) = transactions_of(world, len(world.state.segments.by_number) - 1)
    assert [each.first_offset for each in found.aborted] == [0, 2]
    assert found.decided_offset == 4
    assert [each.offset for each in found.markers] == [13, 14, 15]


def test_key_compaction_stops_at_an_open_transaction_and_merging_does_not(world: World) -> None:
    transact(world, "one", committed=True)
    writer = world.transactions.init("open")
    world.transactions.write(writer, adds=True)
    assert merged(world, 0, 3, cleaned=True, without_aborted=True)[1] == PerItem([Rejection.EXTENTS_CHANGED])
    assert merged(world, 0, 2, cleaned=True, without_aborted=True)[1] == PerItem([Rejection.NONE])
    assert merged(world, 0, 2)[1] == PerItem([Rejection.NONE])
    assert world.transactions.stable() == 2


def test_key_compaction_without_transactions_is_rejected_where_there_were_some(world: World) -> None:
    """An earlier release's compactor would keep an aborted record as the latest of its key, not the committed one."""
    world.produce(batch())
    assert merged(world, 0, 1, cleaned=True)[1] == PerItem([Rejection.NONE])
    transact(world, "one", committed=False)
    assert merged(world, 0, 2, cleaned=True)[1] == PerItem([Rejection.EXTENTS_CHANGED])
    assert merged(world, 0, 1, cleaned=True)[1] == PerItem([Rejection.EXTENTS_CHANGED]), "even before the first of them"
    assert ends(world) == [(0, 0), (1, 1), (2, 2)]
    assert merged(world, 0, 2, cleaned=True, without_aborted=True)[1] == PerItem([Rejection.NONE])
    assert ends(world) == [(0, 1), (2, 2)]


def test_a_log_is_dirty_from_its_first_stored_records_to_the_last_stable_offset(world: World) -> None:
    transact(world, "one", committed=True)
    writer = world.transactions.init("open")
    world.transactions.write(writer, adds=True)
    (log, _) = queries.logs(world.state, LogsQuery(0, [topic_id(1)])).logs
    assert (log.last_stable_offset, log.dirty_bytes, log.dirty_since_ms) == (2, 100, START_MS)
    merged(world, 0, 1, cleaned=True, without_aborted=True)
    (log, _) = queries.logs(world.state, LogsQuery(0, [topic_id(1)])).logs
    assert (log.dirty_bytes, log.dirty_since_ms) == (0, -1)
    world.transactions.end(writer)
    (log, _) = queries.logs(world.state, LogsQuery(0, [topic_id(1)])).logs
    assert (log.dirty_bytes, log.dirty_since_ms) == (100, START_MS)


def test_transactions_are_described_with_their_partitions(world: World) -> None:
    world.topic("u", 3, number=2)
    writer = world.transactions.init(timeout_ms=5_000)
    world.transactions.add(writer, 1, 0)
    world.transactions.add(writer, 2, number=2)
    view = queries.describe_transactions(world.state, DescribeTransactionsQuery(0, ["tx", "none"]))
    topics = [TransactionTopic("t", [0, 1]), TransactionTopic("u", [2])]
    described = TransactionView("tx", "Ongoing", writer.producer_id, 0, 5_000, world.now_ms, topics)
    assert view.transactions == [described, TransactionView("none", "Dead")]
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    (view_after,) = queries.describe_transactions(world.state, DescribeTransactionsQuery(0, ["tx"])).transactions
    assert view_after.topics == [TransactionTopic("u", [2])]


def test_transactions_are_listed_by_state_producer_and_duration(world: World) -> None:
    idle = world.transactions.init("idle")
    world.transactions.add(world.transactions.init("long"))
    world.wait(1_000)
    world.transactions.add(world.transactions.init("short"))

    def listed(**wanted: Any) -> list[str]:
        view = queries.transactions(world.state, TransactionsQuery(0, **wanted))
        return [each.transactional_id for each in view.transactions]

    assert listed() == ["idle", "long", "short"]
    assert listed(states=["Empty"]) == listed(producer_ids=[idle.producer_id, 99, idle.producer_id]) == ["idle"]
    assert listed(producer_ids=[99]) == listed(producer_ids=[idle.producer_id], states=["Ongoing"]) == []
    assert listed(duration_ms=999) == ["long"]
    assert listed(states=["Ongoing"], duration_ms=-1) == ["long", "short"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("", ["a-1", "a-2", "b-1"]), ("a-.*", ["a-1", "a-2"]), ("a", []), ("[ab]-1", ["a-1", "b-1"]), ("c+", [])],
)
def test_transactions_are_listed_by_patterns_for_their_whole_ids(world: World, pattern: str, found: list[str]) -> None:
    for name in ("a-1", "a-2", "b-1"):
        world.transactions.init(name)
    view = queries.transactions(world.state, TransactionsQuery(0, pattern=pattern))
    assert ([each.transactional_id for each in view.transactions], view.rejection) == (found, Rejection.NONE)


def test_a_pattern_matches_letters_that_no_topic_has_only_with_wildcards(world: World) -> None:
    for name in ("ab$c", "abü", "abc"):
        world.transactions.init(name)

    def listed(pattern: str) -> list[str]:
        view = queries.transactions(world.state, TransactionsQuery(0, pattern=pattern))
        return [each.transactional_id for each in view.transactions]

    assert listed("[A-Za-z0-9._-]*") == ["abc"]
    assert listed("ab.*") == listed(".*") == ["ab$c", "abc", "abü"]
    assert listed("ab[^c$]") == ["abü"]


def test_a_limited_number_of_ids_is_matched_with_a_pattern_at_once(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(pattern_letters_max=5)))
    for name in ("aa", "ab", "ba", "bb", "bc-longer", "c"):
        world.transactions.init(name)
    found, looks, after, is_more = [], [], "", True
    while is_more:
        view = queries.transactions(world.state, TransactionsQuery(0, after=after, pattern="b.*"))
        found += [each.transactional_id for each in view.transactions]
        looks.append(view.after)
        after, is_more = view.after, view.is_more
    assert (found, looks) == (["ba", "bb", "bc-longer"], ["ab", "bb", "bc-longer", "c"])


def test_an_invalid_pattern_lists_no_transactions(world: World) -> None:
    world.transactions.init("a")
    view = queries.transactions(world.state, TransactionsQuery(0, pattern="(a"))
    assert (view.transactions, view.rejection) == ([], Rejection.INVALID_PATTERN)


def test_the_producers_of_a_partition_are_listed_with_their_open_transactions(world: World) -> None:
    plain = world.producer()
    world.produce(batch(producer=plain, epoch=0, sequence=0))
    writer = world.transactions.init()
    world.transactions.write(writer, records=2, adds=True)
    view = queries.producers(world.state, ProducersQuery(0, [(topic_id(1), 0), (topic_id(1), 7)]))
    found = [
        ProducerView(plain, 0, 0, world.now_ms, -1, -1),
        ProducerView(writer.producer_id, 0, 1, world.now_ms, world.state.leader_epoch, 1),
    ]
    assert view.partitions == [PartitionProducers(Rejection.NONE, found), PartitionProducers(Rejection.UNKNOWN_TOPIC)]


def test_no_transaction_begins_while_partitions_have_too_many_aborted_ones(world: World) -> None:
    world.use_limits(Limits(transactions=TransactionLimits(aborted_transactions_max=1)))
    writer = transact(world, committed=False)
    assert world.transactions.write(writer, adds=True).rejection == Rejection.OVERLOADED
    assert (
        world.transactions.add(writer).rejection
        == world.transactions.add_offsets(writer).rejection
        == Rejection.OVERLOADED
    )


def test_transactions_are_listed_in_pages_by_their_ids(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(transactions_listed_max=2)))
    for name in ("d", "a", "e", "b", "c"):
        world.transactions.init(name)
    pages, after = [], ""
    while not pages or pages[-1].is_more:
        pages.append(queries.transactions(world.state, TransactionsQuery(0, after=after)))
        after = pages[-1].transactions[-1].transactional_id
    assert [[each.transactional_id for each in page.transactions] for page in pages] == [["a", "b"], ["c", "d"], ["e"]]


def test_an_answer_has_no_more_partitions_and_producers_than_fit(world: World) -> None:
    """At least one transaction and one partition, so that a client that asks for the rest comes to an end."""
    world.use_limits(Limits(answers=AnswerLimits(transaction_partitions_listed_max=1, producers_listed_max=1)))
    world.transactions.write(world.transactions.init("a"), adds=True)
    described = queries.describe_transactions(world.state, DescribeTransactionsQuery(0, ["a", "a"]))
    assert [each.transactional_id for each in described.transactions] == ["a"]
    produced = queries.producers(world.state, ProducersQuery(0, [(topic_id(1), 0), (topic_id(1), 1)]))
    assert [len(each.producers) for each in produced.partitions] == [1]
