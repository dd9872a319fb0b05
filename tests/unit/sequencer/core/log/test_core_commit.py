"""Segment commits: dense offsets, one extent per contiguous run, and the same answer for the same segment."""

import msgspec
import pytest

from penstock.contracts.batches import BatchResult, SegmentRef
from penstock.contracts.commands import CommitSegment, DeleteTopic, Rejected, SegmentCommitted
from penstock.contracts.levels import COMMIT_LEASE_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, LogLimits
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(partitions=2)
    return world


def test_batches_get_dense_offsets_in_commit_order(world: World) -> None:
    assert world.produce(batch(3), batch(2)) == [BatchResult(0, 0, 0), BatchResult(0, 3, 0)]
    assert world.produce(batch(1)) == [BatchResult(0, 5, 0)]
    assert world.state.topics["t"].partitions[0].high_watermark == 6


def test_partitions_count_their_offsets_separately(world: World) -> None:
    outcome = world.do(world.segment_command((1, 0, [batch(3)]), (1, 1, [batch(2)])))
    assert outcome == SegmentCommitted([[BatchResult(0, 0, 0)], [BatchResult(0, 0, 0)]])


def test_contiguous_batches_are_one_extent_with_the_highest_timestamp(world: World) -> None:
    command = world.segment_command((1, 0, [batch(3, 70, 20), batch(2, 50, 30), batch(1, 10, 25)]))
    world.do(command)
    assert world.effects is not None
    (advance,) = world.effects.partitions
    (extent,) = advance.extents
    assert (extent.base_offset, extent.last_offset, extent.position, extent.length) == (0, 5, 0, 130)
    assert extent.max_timestamp == 30
    assert extent.segment == SegmentRef(command.segment_id, 0, 130, "flusher-1", "z1")
    assert (advance.log_start_offset, advance.high_watermark, advance.last_stable_offset) == (0, 6, 6)


def test_a_rejected_batch_splits_the_extent_and_leaves_dead_bytes(world: World) -> None:
    gap = batch(1, 40, producer=world.producer(), epoch=0, sequence=7)
    first, rejected, last = world.produce(batch(2, 30), gap, batch(3, 20))
    assert rejected == BatchResult(Rejection.OUT_OF_ORDER_SEQUENCE)
    assert (first.base_offset, last.base_offset) == (0, 2)
    assert world.effects is not None
    before, behind = world.effects.partitions[0].extents
    assert (before.position, before.length, behind.position, behind.length) == (0, 30, 70, 20)
    assert world.state.segments.live_bytes[0] == 50


def test_only_the_run_of_an_unknown_topic_or_partition_is_rejected(world: World) -> None:
    outcome = world.do(world.segment_command((9, 0, [batch(), batch()]), (1, 0, [batch()]), (1, 2, [batch()])))
    unknown = BatchResult(Rejection.UNKNOWN_TOPIC)
    assert outcome.runs == [[unknown, unknown], [BatchResult(0, 0, 0)], [unknown]]


def test_a_segment_without_accepted_batches_is_dead_at_once(world: World) -> None:
    world.do(world.segment_command((9, 0, [batch()])))
    assert list(world.state.segments.dead_since_ms) == [world.now_ms]
    assert world.effects is not None
    assert world.effects.partitions == []


def test_a_segment_committed_again_gets_the_same_results_and_changes_nothing(world: World) -> None:
    producer = world.producer()
    steps = [
        batch(2, producer=producer, epoch=0, sequence=0),
        batch(5),
        batch(1, producer=producer, epoch=0, sequence=9),
    ]
    world.produce(steps[0])
    command = world.segment_command((9, 0, [batch()]), (1, 0, steps), (1, 1, [batch(4), batch(4)]))
    first = world.do(command)
    assert [result.rejection for result in first.runs[1]] == [0, 0, Rejection.OUT_OF_ORDER_SEQUENCE]
    world.produce(batch(9))
    assert world.do(command) == first
    assert world.effects is not None
    assert world.effects.partitions == []
    assert world.state.topics["t"].partitions[0].high_watermark == 2 + 5 + 9


def test_a_segment_committed_twice_in_one_entry_counts_once(world: World) -> None:
    command = world.segment_command((1, 0, [batch(3)]))
    (first,), (second,) = world.entry([command], [command])
    assert first == second
    assert world.state.topics["t"].partitions[0].high_watermark == 3


def test_a_segment_committed_again_with_other_batches_is_rejected(world: World) -> None:
    command = world.segment_command((1, 0, [batch(3)]))
    world.do(command)
    other = msgspec.structs.replace(command, runs=[])
    assert world.do(other).rejection == Rejection.INVALID_REQUEST


def test_a_segment_is_committed_up_to_its_fifteenth_minute_and_not_later(world: World) -> None:
    world.wait(DEFAULT_LIMITS.log.segment_commit_age_max_ms)
    in_time = world.segment_command((1, 0, [batch()]), born_ms=START_MS)
    too_late = world.segment_command((1, 0, [batch()]), born_ms=START_MS - 1)
    assert isinstance(world.do(in_time), SegmentCommitted)
    assert world.do(too_late).rejection == Rejection.SEGMENT_TOO_OLD


def test_a_commit_is_remembered_until_sending_it_again_is_too_late(world: World) -> None:
    command = world.segment_command((1, 0, [batch()]))
    first = world.do(command)
    world.wait(DEFAULT_LIMITS.log.segment_commit_age_max_ms)
    assert world.do(command) == first
    world.wait(1)
    assert world.state.commits == {}
    assert world.do(command).rejection == Rejection.SEGMENT_TOO_OLD


def test_a_commit_after_its_lease_is_stale_for_ever_and_one_within_it_is_remembered() -> None:
    world = World(level=COMMIT_LEASE_LEVEL)
    world.topic()
    in_time = leased(world, 2_000)
    late = leased(world, 2_000)
    world.wait(2_000)
    first = world.do(in_time)
    assert isinstance(first, SegmentCommitted)
    world.wait(1)
    for _ in range(2):
        assert world.do(late).rejection == Rejection.STALE
        assert world.do(in_time) == first, "the flusher in doubt gets the result of its first attempt"
    assert world.state.topics["t"].partitions[0].high_watermark == 1


def test_below_its_level_a_lease_has_no_effect_because_earlier_releases_do_not_know_it(world: World) -> None:
    late = leased(world, 1)
    world.wait(1_000)
    assert isinstance(world.do(late), SegmentCommitted)


def leased(world: World, lease_ms: int) -> CommitSegment:
    """A commit of one batch that ends so many ms from now."""
    command = world.segment_command((1, 0, [batch()]))
    return msgspec.structs.replace(command, not_after_ms=world.now_ms + lease_ms)


def test_a_segment_from_the_far_future_is_rejected(world: World) -> None:
    command = world.segment_command(
        (1, 0, [batch()]), born_ms=world.now_ms + DEFAULT_LIMITS.log.segment_commit_age_max_ms + 1
    )
    assert world.do(command).rejection == Rejection.OVERLOADED


@pytest.mark.parametrize(
    "broken",
    [
        batch(0),
        batch(-1),
        batch(2**31),
        batch(length=0),
        batch(length=101),
        batch(timestamp=2**63),
    ],
)
def test_impossible_numbers_reject_the_whole_segment(world: World, broken: object) -> None:
    sound = world.segment_command((1, 0, [batch(), batch()]))
    runs = [msgspec.structs.replace(sound.runs[0], batches=[sound.runs[0].batches[0], broken])]
    outcome = world.do(msgspec.structs.replace(sound, runs=runs))
    assert isinstance(outcome, Rejected)
    assert outcome.rejection == Rejection.INVALID_REQUEST
    assert len(world.state.segments) == 0


def test_a_run_before_the_segment_or_a_bad_id_or_size_is_rejected(world: World) -> None:
    sound = world.segment_command((1, 0, [batch()]))
    early = [msgspec.structs.replace(sound.runs[0], position=-1)]
    for change in ({"runs": early}, {"segment_id": b"short"}, {"size_bytes": 2**32}, {"size_bytes": -1}):
        outcome = world.do(msgspec.structs.replace(sound, **change))
        assert outcome.rejection == Rejection.INVALID_REQUEST


def test_a_commit_above_the_limit_of_remembered_commits_is_rejected_as_a_whole(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(remembered_commits_max=1)))
    world.produce(batch())
    command = world.segment_command((1, 0, [batch()]))
    assert world.do(command).rejection == Rejection.OVERLOADED
    world.wait(DEFAULT_LIMITS.log.segment_commit_age_max_ms + 1)
    assert world.produce(batch()) == [BatchResult(0, 1, 0)]


def test_an_entry_announces_each_partition_once_with_all_its_new_extents(world: World) -> None:
    commands = [world.segment_command((1, 0, [batch(2)])), world.segment_command((1, 0, [batch(3)]))]
    world.entry(commands)
    assert world.effects is not None
    (advance,) = world.effects.partitions
    assert [(extent.base_offset, extent.last_offset) for extent in advance.extents] == [(0, 1), (2, 4)]


def test_a_topic_deleted_in_the_same_entry_is_not_announced(world: World) -> None:
    world.entry([world.segment_command((1, 0, [batch(2)])), DeleteTopic(world.now_ms, "", topic_id(1))])
    assert world.effects is not None
    assert world.effects.partitions == []
    assert world.effects.topics == ["t"]
