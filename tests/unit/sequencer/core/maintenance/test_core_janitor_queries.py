"""Queries of janitors: dead segments and since when they are dead, known segments, and totals."""

import pytest

from penstock.contracts.commands import (
    DeleteTopic,
    LeaseJob,
    RaiseLevel,
    RecordSnapshot,
    ReleaseJob,
    RemoveSegments,
    TakeCustody,
)
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.compaction import SegmentsQuery
from penstock.contracts.queries.janitor import (
    KNOWN_SEGMENTS_ASKED_MAX,
    DeadSegment,
    DeadSegmentsQuery,
    KnownSegment,
    KnownSegmentsQuery,
    UsageQuery,
    UsageView,
)
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, AnswerLimits, Limits
from tests.unit.sequencer.core.core_world import World, batch

EVER = 2**62


@pytest.fixture
def world() -> World:
    """Segments of 100 bytes: two of topic t, then one of u; a snapshot holds all of them."""
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.do(TakeCustody(world.now_ms, "r1"))
    world.topic("t")
    world.topic("u", number=2)
    for number in (1, 1, 2):
        world.produce(batch(), number=number)
    for sequence in (6, 7):
        world.do(RecordSnapshot(world.now_ms, "r1", sequence))
    return world


def ids(world: World) -> list[SegmentId]:
    table = world.state.segments
    return [table.id(slot) for slot in table.by_number]


def dead(world: World, before_ms: int = EVER, before_sequence: int = EVER, limit: int = 100) -> list[DeadSegment]:
    view = queries.dead(world.state, DeadSegmentsQuery(0, before_ms, before_sequence, limit))
    assert (view.sequence, view.clock_ms, view.secured_sequence) == (world.state.sequence, world.now_ms, 6)
    return view.segments


def dead_ids(world: World, **bounds: int) -> list[SegmentId]:
    return [each.segment_id for each in dead(world, **bounds)]


def test_dead_segments_are_reported_with_time_and_entry(world: World) -> None:
    first, second, _ = ids(world)
    assert dead(world) == []
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    sequence = world.state.sequence
    assert dead(world) == [DeadSegment(each, 0, 100, world.now_ms, sequence) for each in (first, second)]
    assert dead_ids(world, limit=1) == [first]


def test_segments_that_died_later_than_asked_for_are_left_out(world: World) -> None:
    first, second, third = ids(world)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    sequence, died_ms = world.state.sequence, world.now_ms
    world.wait(10)
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    assert dead_ids(world, before_ms=died_ms - 1) == []
    assert dead_ids(world, before_ms=died_ms) == dead_ids(world, before_ms=died_ms + 9) == [first, second]
    assert dead_ids(world, before_sequence=sequence - 1) == []
    assert dead_ids(world, before_sequence=sequence + 1) == [first, second]
    assert dead_ids(world, before_sequence=sequence + 2) == [first, second, third]


def test_dead_segments_with_a_job_lease_are_left_out(world: World) -> None:
    first, second, _ = ids(world)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.do(LeaseJob(world.now_ms, "reap", "janitor-1", [first], 60_000))
    assert dead_ids(world) == [second]
    world.do(ReleaseJob(world.now_ms, "reap", "janitor-1"))
    assert dead_ids(world) == [first, second]
    world.do(LeaseJob(world.now_ms, "reap", "janitor-1", [first], 60_000))
    world.now_ms += 60_000
    world.produce(batch(), number=2)  # no Tick has come since the end of the lease
    assert dead_ids(world) == [first, second]


def test_the_walk_over_dead_segments_is_bounded(world: World) -> None:
    first, second, _ = ids(world)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.do(LeaseJob(world.now_ms, "reap", "janitor-1", [first], 60_000))
    world.use_limits(Limits(answers=AnswerLimits(dead_walked_max=1)))
    assert dead_ids(world) == []
    world.do(RemoveSegments(world.now_ms, [first]))
    assert dead_ids(world) == [second]


def test_dead_segments_are_listed_page_by_page(world: World) -> None:
    expected = ids(world)
    for name in ("t", "u"):
        world.do(DeleteTopic(world.now_ms, name, bytes(16)))
    for walked_max, limit in ((1, 100), (2, 1), (100, 2)):
        world.use_limits(Limits(answers=AnswerLimits(dead_walked_max=walked_max)))
        listed, place = [], 0
        while place >= 0:
            view = queries.dead(world.state, DeadSegmentsQuery(0, EVER, EVER, limit, first_place=place))
            listed += [each.segment_id for each in view.segments]
            place = view.next_place
        assert listed == expected
    assert queries.dead(world.state, DeadSegmentsQuery(0, -1, EVER, 1)).next_place == -1, "all others died too late"


def known(world: World, *segment_ids: SegmentId) -> list[KnownSegment | None]:
    view = queries.known_segments(world.state, KnownSegmentsQuery(0, list(segment_ids)))
    assert (view.sequence, view.clock_ms, view.secured_sequence) == (world.state.sequence, world.now_ms, 6)
    assert view.failure is None
    return view.segments


def test_a_known_segment_is_reported_as_in_listings(world: World) -> None:
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    listed = queries.segments(world.state, SegmentsQuery(0, 0, [], 10, dead=True)).segments
    dead_sequences = [world.state.sequence, world.state.sequence, 0]
    expected = [KnownSegment(view, True, sequence) for view, sequence in zip(listed, dead_sequences, strict=True)]
    assert known(world, *ids(world)) == expected


def test_a_removed_segment_is_remembered_as_long_as_its_commit_could_come_again(world: World) -> None:
    first, *_ = ids(world)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.do(RemoveSegments(world.now_ms, [first]))
    assert known(world, first) == [KnownSegment(None, True)]
    world.wait(DEFAULT_LIMITS.log.segment_commit_age_max_ms)
    assert known(world, first) == [KnownSegment(None, True)]
    world.wait(1)
    assert known(world, first) == [None]


def test_an_unknown_segment_is_reported_in_its_place(world: World) -> None:
    never = new_segment_id(world.now_ms, b"never" * 2)
    first, *_ = ids(world)
    assert [each is None for each in known(world, never, first, b"", bytes(16))] == [True, False, True, True]


def test_too_many_ids_are_a_failure_and_not_a_short_answer(world: World) -> None:
    first, *_ = ids(world)
    assert len(known(world, *[first] * KNOWN_SEGMENTS_ASKED_MAX)) == KNOWN_SEGMENTS_ASKED_MAX
    too_many = KnownSegmentsQuery(0, [first] * (KNOWN_SEGMENTS_ASKED_MAX + 1))
    view = queries.known_segments(world.state, too_many)
    assert view.failure == "2001 ids are more than the 2000 of one query"
    assert view.segments == []


def test_usage_adds_up(world: World) -> None:
    def expected(*numbers: int) -> UsageView:
        return UsageView(world.state.sequence, world.now_ms, 6, *numbers)

    def usage() -> UsageView:
        return queries.usage(world.state, UsageQuery(0))

    assert usage() == expected(3, 300, 0, 0, 0, -1, 3, 0)
    world.do(world.segment_command((1, 0, [batch(length=30)]), (9, 0, [batch(length=70)])))
    assert usage() == expected(4, 330, 70, 0, 0, -1, 4, 0)
    world.wait(5)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    died_ms = world.now_ms
    assert usage() == expected(1, 100, 0, 3, 300, died_ms, 1, 0)
    world.wait(5)
    world.do(RemoveSegments(world.now_ms, ids(world)[:2]))
    assert usage() == expected(1, 100, 0, 1, 100, died_ms, 1, 0)
