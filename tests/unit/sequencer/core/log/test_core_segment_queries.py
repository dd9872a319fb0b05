"""Queries of compactors and audits: segments page by page, their extents, and how clean a log is."""

import pytest

from penstock.contracts.commands import DeleteRecords, DeleteTopic, LogOffset, RaiseLevel, RemoveSegments
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.compaction import (
    LogsQuery,
    LogView,
    PlacedExtent,
    SegmentExtentsQuery,
    SegmentsQuery,
    SegmentView,
)
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, LogLimits
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id


@pytest.fixture
def world() -> World:
    """Two topics, five segments: each with 10 records of the first in 100 bytes and one of the second in 50."""
    world = World()
    world.topic("t", 2)
    world.topic("u", number=2)
    for number in range(5):
        world.do(world.segment_command((1, 0, [batch(10, 100, START_MS + number)]), (2, 0, [batch(1, 50)])))
    return world


def listed(
    world: World, first_row: int = 0, *, levels: tuple[int, ...] = (), limit: int = 100, dead: bool = False
) -> tuple[list[int], int]:
    view = queries.segments(world.state, SegmentsQuery(0, first_row, list(levels), limit, dead))
    return [each.row for each in view.segments], view.next_row


def extents(world: World, *rows: int) -> list[list[PlacedExtent]]:
    return queries.segment_extents(world.state, SegmentExtentsQuery(0, list(rows))).extents


def log(world: World) -> LogView:
    return queries.logs(world.state, LogsQuery(0, [topic_id(1)])).logs[0]


def test_a_segment_is_listed_with_its_live_extents_and_bytes(world: World) -> None:
    world.do(world.job((1, 0, 0, 1)))
    view = queries.segments(world.state, SegmentsQuery(0, 0, [], 1))
    assert view.clock_ms == world.now_ms
    assert view.segments == [SegmentView(0, world.state.segments.id(0), 0, 150, 50, 1, -1, False)]


def test_segments_are_listed_page_by_page(world: World) -> None:
    assert listed(world, limit=2) == ([0, 1], 2)
    assert listed(world, 2, limit=2) == ([2, 3], 4)
    assert listed(world, 4, limit=2) == ([4], -1)
    assert listed(world, limit=5) == ([0, 1, 2, 3, 4], -1)


def test_dead_segments_are_listed_on_demand(world: World) -> None:
    world.do(world.job((1, 0, 0, 3), (2, 0, 0, 2)))
    assert listed(world) == ([2, 3, 4, 5], -1)
    assert listed(world, dead=True) == ([0, 1, 2, 3, 4, 5], -1)
    assert listed(world, limit=1) == ([2], 3)


def test_a_removed_segment_is_skipped_and_the_next_segment_of_its_slot_is_listed_last(world: World) -> None:
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.do(world.job((1, 0, 0, 3), (2, 0, 0, 3)))
    world.do(RemoveSegments(world.now_ms, [world.state.segments.id(slot) for slot in (0, 2)]))
    world.produce(batch(1, 70), number=2)
    world.produce(batch(1, 80), number=2)
    assert list(world.state.segments.by_number) == [1, 3, 4, 5, 0, 2]
    assert listed(world) == ([3, 4, 5, 6, 7], -1)
    assert listed(world, dead=True) == ([1, 3, 4, 5, 6, 7], -1)
    assert listed(world, 2, limit=1) == ([3], 4)
    assert listed(world, 6, limit=1) == ([6], 7)
    assert [[each.length for each in segment] for segment in extents(world, 0, 6, 7, 2)] == [[], [70], [80], []]


def test_a_listing_selects_levels(world: World) -> None:
    world.do(world.job((1, 0, 0, 2)))
    world.do(world.job((1, 0, 1, 3), level=2))
    assert listed(world, levels=(1,)) == ([5], -1)
    assert listed(world, levels=(1, 2)) == ([5, 6], -1)
    assert listed(world, levels=(7, 2**63)) == ([], -1)


@pytest.mark.parametrize("first_row", [5, 6, 2**40, 2**64 - 1])
def test_a_listing_after_the_last_segment_is_empty(world: World, first_row: int) -> None:
    assert listed(world, first_row) == ([], -1)


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_a_listing_makes_progress_with_any_limit(world: World, limit: int) -> None:
    assert listed(world, -5, limit=limit) == ([0], 1)


def test_a_listing_walks_a_bounded_number_of_rows_and_names_the_next(world: World) -> None:
    world.do(world.job((1, 0, 0, 2), level=2))
    world.use_limits(Limits(answers=AnswerLimits(rows_walked_max=2)))
    assert listed(world, levels=(2,)) == ([], 2)
    assert listed(world, 2, levels=(2,)) == ([], 4)
    assert listed(world, 4, levels=(2,)) == ([5], -1)


def test_skipped_dead_segments_cost_a_bounded_walk_too(world: World) -> None:
    world.do(world.job((1, 0, 0, 5), (2, 0, 0, 5)))
    world.use_limits(Limits(answers=AnswerLimits(dead_rows_walked_max=3)))
    assert listed(world) == ([], 3)
    assert listed(world, 3) == ([5], -1)


def test_a_listing_has_no_more_segments_than_an_answer_holds(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(segments_listed_max=3)))
    assert listed(world) == ([0, 1, 2], 3)


def test_extents_of_a_segment_come_by_position(world: World) -> None:
    assert extents(world, 1) == [
        [
            PlacedExtent(topic_id(1), 0, 10, 19, 0, 100, START_MS + 1),
            PlacedExtent(topic_id(2), 0, 1, 1, 100, 50, START_MS),
        ]
    ]


def test_replaced_extents_are_found_in_their_new_segment_only(world: World) -> None:
    world.do(world.job((2, 0, 1, 3), (1, 0, 0, 2)))
    found = extents(world, 0, 1, 5)
    assert [[each.base_offset for each in segment] for segment in found] == [[0], [], [1, 0]]
    assert [each.length for each in found[2]] == [100, 200]
    assert [each.position for each in found[2]] == [0, 100]


def test_a_dropped_extent_is_not_taken_for_the_next_one_of_its_segment(world: World) -> None:
    skips = batch(10, 30, producer=world.producer(), epoch=0, sequence=7)
    world.do(world.segment_command((1, 1, [batch(10, 20), skips, batch(10, 40)])))
    assert [each.base_offset for each in extents(world, 5)[0]] == [0, 10]
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 1, 10)]))
    assert [each.base_offset for each in extents(world, 5)[0]] == [10]


def test_extents_of_deleted_topics_are_not_found(world: World) -> None:
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.topic("v", 2, number=3)  # may take the indexes of the deleted partitions
    world.produce(batch(10, 100), number=3)
    assert [[each.topic_id for each in segment] for segment in extents(world, 0, 5)] == [[topic_id(2)], [topic_id(3)]]


def test_an_id_without_a_live_segment_has_no_extents(world: World) -> None:
    world.do(world.job((1, 0, 0, 1), (2, 0, 0, 1)))
    assert extents(world, 0, -1, 99, 2**64 - 1, -(2**63)) == [[]] * 5


def test_an_answer_has_complete_segments_only_and_at_least_one(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(extents_listed_max=5)))
    assert [len(each) for each in extents(world, 0, 1, 2, 3)] == [2, 2]
    world.use_limits(Limits(answers=AnswerLimits(extents_listed_max=1)))
    assert [len(each) for each in extents(world, 3, 1)] == [2]


def test_a_query_for_too_many_segments_is_answered_in_part(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(segments_asked_max=2)))
    assert extents(world, 99, 98, 97) == [[], []]


def test_every_partition_of_the_topics_that_exist_has_its_log(world: World) -> None:
    view = queries.logs(world.state, LogsQuery(0, [topic_id(2), topic_id(9), topic_id(1)]))
    assert [(each.topic_id, each.partition) for each in view.logs] == [
        (topic_id(2), 0),
        (topic_id(1), 0),
        (topic_id(1), 1),
    ]
    assert view.logs[2] == LogView(topic_id(1), 1, 0, 0, 0, 0, -1, 0, 0, -1)


def test_a_log_is_dirty_until_it_was_cleaned(world: World) -> None:
    assert log(world) == LogView(topic_id(1), 0, 0, 50, 50, 0, -1, 0, 500, START_MS)
    world.do(world.job((1, 0, 0, 3), cleaned=True, delete_horizon_ms=START_MS + 99))
    assert log(world) == LogView(topic_id(1), 0, 0, 50, 50, 30, START_MS + 99, 300, 200, START_MS + 3)
    world.do(world.job((1, 0, 0, 3), cleaned=True))
    assert log(world).dirty_since_ms == -1
    assert log(world).dirty_bytes == 0


def test_an_extent_that_is_clean_in_part_is_dirty(world: World) -> None:
    world.do(world.job((1, 0, 0, 2), cleaned=True))
    world.do(world.job((1, 0, 0, 2)))  # a merge across the border
    assert (log(world).cleaned_offset, log(world).clean_bytes, log(world).dirty_bytes) == (20, 0, 500)


def test_a_log_begins_with_the_extent_that_holds_its_start(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(extents_dropped_per_command_max=1)))
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.do(world.job((1, 0, 0, 4), cleaned=True))
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 15)]))
    assert (log(world).log_start_offset, log(world).clean_bytes, log(world).dirty_bytes) == (15, 400, 100)
    for _ in range(2):
        world.produce(batch(10, 100))
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 65)]))
    assert len(world.partition().extents) == 3, "one of the waiting extents is still there"
    assert log(world).dirty_since_ms == START_MS
    assert (log(world).clean_bytes, log(world).dirty_bytes) == (0, 100)
