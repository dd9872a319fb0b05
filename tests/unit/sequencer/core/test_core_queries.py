"""Queries: plans up to a byte budget, extents by time, and metadata by name and id."""

from array import array
from typing import Any

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.queries.log import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    OffsetOf,
    OffsetsQuery,
    PartitionPlan,
    PlanPartition,
    PlanQuery,
)
from penstock.contracts.queries.topics import MetadataQuery
from penstock.contracts.rejections import Rejection
from penstock.contracts.subjects import QUERY_NAMES
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id


@pytest.fixture
def world() -> World:
    """Partition 0: five extents of 10 records and 100 bytes each; partition 1: one; partition 2: none."""
    world = World()
    world.topic(partitions=3)
    for number in range(5):
        world.produce(batch(10, 100, START_MS + number * 10))
    world.produce(batch(10, 100), partition=1)
    return world


def plan(world: World, *wanted: tuple[int, int, int], bytes_max: int = 10_000) -> list[PartitionPlan]:
    partitions = [PlanPartition(topic_id(1), *each) for each in wanted]
    return queries.plan(world.state, PlanQuery(0, partitions, bytes_max)).partitions


def bases(found: PartitionPlan) -> list[int]:
    return [extent.base_offset for extent in found.extents]


def test_every_query_name_has_its_function() -> None:
    """The replica answers the query "journal" itself."""
    assert {*queries.QUERIES, "journal"} == set(QUERY_NAMES)


def test_answers_carry_the_sequence_that_they_reflect(world: World) -> None:
    assert queries.metadata(world.state, MetadataQuery(0, None)).sequence == world.state.sequence == 7


def test_metadata_names_each_existing_topic_once(world: World) -> None:
    world.topic("u", number=2)
    view = queries.metadata(world.state, MetadataQuery(0, ["u", "none", "u"], [topic_id(2), topic_id(1), topic_id(9)]))
    assert [topic.name for topic in view.topics] == ["u", "t"]
    assert queries.metadata(world.state, MetadataQuery(0, [])).topics == []


def test_a_plan_begins_with_the_extent_that_holds_the_offset(world: World) -> None:
    assert bases(plan(world, (0, 0, 10_000))[0]) == [0, 10, 20, 30, 40]
    assert bases(plan(world, (0, 19, 10_000))[0]) == [10, 20, 30, 40]
    assert bases(plan(world, (0, 49, 10_000))[0]) == [40]


def test_a_plan_at_the_high_watermark_is_empty_and_no_error(world: World) -> None:
    (found,) = plan(world, (0, 50, 10_000))
    assert (found.rejection, found.extents, found.high_watermark) == (Rejection.NONE, [], 50)


@pytest.mark.parametrize("offset", [-1, 51, 2**63])
def test_an_offset_outside_of_the_log_is_out_of_range(world: World, offset: int) -> None:
    (found,) = plan(world, (0, offset, 10_000))
    assert (found.rejection, found.extents) == (Rejection.OFFSET_OUT_OF_RANGE, [])
    assert (found.log_start_offset, found.high_watermark) == (0, 50)


def test_a_plan_reports_unknown_partitions_beside_the_others(world: World) -> None:
    found = plan(world, (3, 0, 100), (-1, 0, 100), (1, 0, 100))
    assert [each.rejection for each in found] == [Rejection.UNKNOWN_TOPIC, Rejection.UNKNOWN_TOPIC, Rejection.NONE]
    assert bases(found[2]) == [0]


def test_a_plan_ends_with_the_extent_that_fills_the_partitions_budget(world: World) -> None:
    assert bases(plan(world, (0, 0, 100))[0]) == [0]
    assert bases(plan(world, (0, 0, 101))[0]) == [0, 10]


def test_an_extent_counts_towards_the_budget_from_the_offset_on(world: World) -> None:
    assert bases(plan(world, (0, 9, 100))[0]) == [0, 10]


def test_the_whole_budget_is_used_in_the_order_of_the_query(world: World) -> None:
    found = plan(world, (0, 0, 1_000), (1, 0, 1_000), bytes_max=150)
    assert [bases(each) for each in found] == [[0, 10], []]
    found = plan(world, (0, 0, 100), (1, 0, 1_000), bytes_max=150)
    assert [bases(each) for each in found] == [[0], [0]]


def test_the_first_partition_with_data_gets_an_extent_without_any_budget(world: World) -> None:
    found = plan(world, (2, 0, 0), (0, 50, 0), (0, 20, 0), (1, 0, 0), bytes_max=0)
    assert [bases(each) for each in found] == [[], [], [20], []]
    assert bases(plan(world, (0, 0, -5), bytes_max=-5)[0]) == [0]


def test_a_plan_holds_a_bounded_number_of_extents(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(plan_extents_max=3)))
    found = plan(world, (0, 20, 10_000), (0, 0, 10_000))
    assert [bases(each) for each in found] == [[20, 30, 40], []]


def offset_of(world: World, timestamp: int, partition: int = 0) -> Any:
    query = OffsetsQuery(0, [OffsetOf(topic_id(1), partition, timestamp)])
    return queries.offsets(world.state, query).partitions[0]


def test_earliest_and_latest_are_the_ends_of_the_log(world: World) -> None:
    assert offset_of(world, EARLIEST).offset == 0
    assert offset_of(world, LATEST).offset == 50
    assert offset_of(world, LATEST, 2).offset == 0


def test_a_time_gives_the_first_extent_that_reaches_it(world: World) -> None:
    assert offset_of(world, START_MS).extent.base_offset == 0
    assert offset_of(world, START_MS + 11).extent.base_offset == 20
    late = offset_of(world, START_MS + 41)
    assert (late.rejection, late.offset, late.extent) == (Rejection.NONE, -1, None)


def test_the_highest_timestamp_gives_the_extent_that_has_it(world: World) -> None:
    world.produce(batch(10, 100, START_MS + 5))
    found = offset_of(world, MAX_TIMESTAMP)
    assert (found.extent.base_offset, found.offset) == (40, 49)
    empty = offset_of(world, MAX_TIMESTAMP, 2)
    assert (empty.offset, empty.extent) == (-1, None)


def test_the_offset_of_an_unknown_partition_is_rejected(world: World) -> None:
    assert offset_of(world, LATEST, 3).rejection == Rejection.UNKNOWN_TOPIC


@given(st.lists(st.integers(-3, 12) | st.none(), max_size=300))
def test_columns_find_the_same_rows_as_a_plain_list_after_any_drops(plan: list[int | None]) -> None:
    columns = Extents()
    plain: list[tuple[int, int]] = []  # last offset, timestamp
    offset = 0
    for timestamp in plan:
        if timestamp is not None:
            columns.append(offset, offset + 1, 7, 0, 5, timestamp)
            plain.append((offset + 1, timestamp))
            offset += 2
        elif plain:
            assert columns.drop_first(1) == (array("I", [7]), array("I", [5]))
            plain.pop(0)
    assert len(columns) == len(plain)
    for wanted in range(-3, 13):
        expected = next((place for place, (_, timestamp) in enumerate(plain) if timestamp >= wanted), len(plain))
        assert columns.find_timestamp(wanted) - columns.head == expected
    for wanted in range(offset + 2):
        expected = next((place for place, (last, _) in enumerate(plain) if last >= wanted), len(plain))
        assert columns.find_offset(wanted) - columns.head == expected
    highest = max((timestamp for _, timestamp in plain), default=None)
    expected = next((place for place, (_, timestamp) in enumerate(plain) if timestamp == highest), len(plain))
    assert columns.find_latest() - columns.head == expected


def test_dropping_from_the_front_frees_the_columns() -> None:
    columns = Extents()
    for number in range(1_000):
        columns.append(number, number, 0, 0, 1, 0)
    for _ in range(900):
        columns.drop_first(1)
    assert len(columns) == 100
    assert columns.end < 300
