"""Remembered commits: how long the machine remembers a commit, how many it can remember, and late copies of one."""

import msgspec
import pytest

from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import COMMIT_LEASE_MS, CommitSegment, Rejected, SegmentCommitted
from penstock.contracts.levels import COMMIT_LEASE_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, HOUR_MS, SECOND_MS, Limits, LogLimits
from tests.unit.sequencer.core.core_world import World, batch

AGE_MAX_MS = DEFAULT_LIMITS.log.segment_commit_age_max_ms
MEMORY_MS = DEFAULT_LIMITS.log.commit_memory_ms


@pytest.fixture
def world() -> World:
    world = World(level=COMMIT_LEASE_LEVEL)
    world.topic()
    return world


def leased(world: World, lease_ms: int = COMMIT_LEASE_MS) -> CommitSegment:
    """A commit of one batch that ends so many ms from now."""
    command = world.segment_command((1, 0, [batch()]))
    return msgspec.structs.replace(command, not_after_ms=world.now_ms + lease_ms)


def high_watermark(world: World) -> int:
    return world.partition().high_watermark


def test_a_steady_rate_of_commits_needs_memory_for_three_minutes_of_them(world: World) -> None:
    """With memory for 15 minutes, such a cluster rejected commits after 200 seconds."""
    world.use_limits(Limits(log=LogLimits(remembered_commits_max=20)))
    most = 0
    step_ms = 10 * SECOND_MS
    for _ in range(2 * AGE_MAX_MS // step_ms):
        assert isinstance(world.do(leased(world)), SegmentCommitted)
        most = max(most, len(world.state.commits))
        world.wait(step_ms)
    assert most == (COMMIT_LEASE_MS + MEMORY_MS) // step_ms + 1


def test_below_its_level_a_lease_does_not_shorten_the_memory() -> None:
    world = World()
    world.topic()
    command = leased(world)
    first = world.do(command)
    world.wait(AGE_MAX_MS)
    assert world.do(command) == first


def test_a_late_copy_gets_the_first_result_and_later_an_unknown_outcome(world: World) -> None:
    command = leased(world)
    first = world.do(command)
    world.wait(COMMIT_LEASE_MS + MEMORY_MS)
    assert world.do(command) == first
    world.wait(1)
    assert world.state.commits == {}
    assert world.do(command).rejection == Rejection.SEGMENT_TOO_OLD
    assert high_watermark(world) == 1


def test_a_first_copy_after_its_lease_is_certainly_not_committed_and_later_its_outcome_is_unknown(world: World) -> None:
    command = leased(world)
    world.wait(COMMIT_LEASE_MS + 1)
    assert world.do(command).rejection == Rejection.STALE
    world.wait(MEMORY_MS - 1)
    assert world.do(command).rejection == Rejection.STALE
    world.wait(1)
    assert world.do(command).rejection == Rejection.SEGMENT_TOO_OLD
    assert high_watermark(world) == 0


@pytest.mark.parametrize("leap_ms", [HOUR_MS, 30 * 24 * HOUR_MS])
@pytest.mark.parametrize("was_accepted", [True, False])
def test_after_a_leap_of_the_clock_no_outcome_is_certain(world: World, leap_ms: int, *, was_accepted: bool) -> None:
    command = leased(world, 2 * SECOND_MS)
    if was_accepted:
        world.do(command)
    world.wait(leap_ms)
    assert world.do(command).rejection == Rejection.SEGMENT_TOO_OLD
    assert high_watermark(world) == was_accepted


def test_a_known_segment_is_not_committed_again_by_a_newer_command(world: World) -> None:
    command = leased(world)
    world.do(command)
    world.wait(COMMIT_LEASE_MS + MEMORY_MS + 1)
    again = msgspec.structs.replace(command, not_after_ms=world.now_ms + COMMIT_LEASE_MS)
    assert world.do(again).rejection == Rejection.SEGMENT_TOO_OLD
    assert high_watermark(world) == 1


def test_a_lease_of_hours_does_not_outlive_the_segment(world: World) -> None:
    command = leased(world, 24 * HOUR_MS)
    first = world.do(command)
    world.wait(AGE_MAX_MS)
    assert world.do(command) == first
    world.wait(1)
    assert world.state.commits == {}
    assert world.do(command).rejection == Rejection.SEGMENT_TOO_OLD


def test_commits_that_stay_longer_do_not_delay_the_removal_of_those_behind_them(world: World) -> None:
    world.produce(batch(), batch())
    job = world.job((1, 0, 0, 1))
    compacted = world.do(job)
    without_lease = world.segment_command((1, 0, [batch()]))
    first = world.do(without_lease)
    world.do(leased(world))
    assert len(world.state.commits) == 4
    world.wait(COMMIT_LEASE_MS + MEMORY_MS + 1)
    assert len(world.state.commits) == 3
    assert (world.do(job), world.do(without_lease)) == (compacted, first)
    world.wait(AGE_MAX_MS)
    assert world.state.commits == {}


def test_a_snapshot_keeps_what_is_remembered_and_in_which_order(world: World) -> None:
    world.do(world.segment_command((1, 0, [batch()])))
    kept = leased(world)
    first = world.do(kept)
    world.wait(SECOND_MS)
    restored = decode_state(encode_state(world.state))
    assert list(restored.commits) == list(world.state.commits)
    world.state = restored
    assert world.do(kept) == first


def test_flushers_are_asked_for_fewer_segments_before_the_table_is_full(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(remembered_commits_max=5)))
    answers = [world.do(leased(world)) for _ in range(6)]
    assert [isinstance(answer, SegmentCommitted) and answer.is_crowded for answer in answers[:5]] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert isinstance(answers[5], Rejected)
    assert answers[5].rejection == Rejection.OVERLOADED
    world.wait(COMMIT_LEASE_MS + MEMORY_MS + 1)
    assert world.produce(batch()) == [BatchResult(0, 5, 0)]
