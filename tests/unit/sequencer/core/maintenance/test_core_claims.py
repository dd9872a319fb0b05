"""Claims keep compactors out of each other's way: by job and by segment, for a lease, bounded in number."""

import pytest

from penstock.contracts.commands import ClaimJob, Done, Refused, ReleaseJob, Tick
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.queries.compaction import SegmentsQuery
from penstock.contracts.rejections import Refusal
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import (
    CLAIM_LEASE_MAX_MS,
    CLAIMED_SEGMENTS_MAX,
    CLAIMS_MAX,
    SEGMENTS_PER_CLAIM_MAX,
)
from tests.unit.sequencer.core.core_world import World

LEASE_MS = 60_000


def segment(number: int) -> SegmentId:
    return new_segment_id(1, number.to_bytes(10, "big"))


def claim(world: World, *segments: int, job: str = "j", holder: str = "c1", lease_ms: int = LEASE_MS) -> Refusal:
    outcome = world.do(ClaimJob(world.now_ms, job, holder, [segment(each) for each in segments], lease_ms))
    return Refusal.NONE if isinstance(outcome, Done) else outcome.refusal


def release(world: World, job: str = "j", holder: str = "c1") -> None:
    assert world.do(ReleaseJob(world.now_ms, job, holder)) == Done()


def test_a_segment_is_claimed_for_one_job_at_a_time() -> None:
    world = World()
    assert claim(world, 1, 2) == Refusal.NONE
    assert claim(world, 3, 2, job="k") == Refusal.ALREADY_CLAIMED
    assert claim(world, 3, job="k") == Refusal.NONE


def test_a_job_has_one_holder_at_a_time() -> None:
    world = World()
    assert claim(world, 1) == Refusal.NONE
    assert claim(world, 1, holder="c2") == Refusal.ALREADY_CLAIMED
    assert claim(world, 9, holder="c2") == Refusal.ALREADY_CLAIMED


def test_a_claim_that_is_sent_again_goes_on_for_another_lease() -> None:
    world = World()
    claim(world, 1)
    world.wait(LEASE_MS - 1)
    assert claim(world, 1) == Refusal.NONE
    world.wait(LEASE_MS - 1)
    assert claim(world, 1, job="k", holder="c2") == Refusal.ALREADY_CLAIMED
    world.wait(1)
    assert claim(world, 1, job="k", holder="c2") == Refusal.NONE


def test_a_claim_is_over_with_its_lease_also_when_no_tick_comes() -> None:
    world = World()
    claim(world, 1)
    world.now_ms += LEASE_MS
    assert claim(world, 1, holder="c2") == Refusal.NONE


def test_a_claim_does_not_change_its_segments() -> None:
    world = World()
    claim(world, 1, 2)
    assert claim(world, 1) == Refusal.INVALID_REQUEST
    assert claim(world, 1, 2) == Refusal.NONE


def test_a_released_claim_is_free_and_only_its_holder_releases_it() -> None:
    world = World()
    claim(world, 1)
    release(world, holder="c2")
    assert claim(world, 1, job="k") == Refusal.ALREADY_CLAIMED
    release(world)
    release(world)
    assert claim(world, 1, job="k") == Refusal.NONE


@pytest.mark.parametrize(
    "command",
    [
        ClaimJob(1, "", "c", [segment(1)], LEASE_MS),
        ClaimJob(1, "j", "", [segment(1)], LEASE_MS),
        ClaimJob(1, "j" * 257, "c", [segment(1)], LEASE_MS),
        ClaimJob(1, "j", "c" * 257, [segment(1)], LEASE_MS),
        ClaimJob(1, "j", "c", [], LEASE_MS),
        ClaimJob(1, "j", "c", [segment(1), segment(1)], LEASE_MS),
        ClaimJob(1, "j", "c", [b"short"], LEASE_MS),
        ClaimJob(1, "j", "c", [segment(1)], 0),
        ClaimJob(1, "j", "c", [segment(1)], CLAIM_LEASE_MAX_MS + 1),
        ClaimJob(1, "j", "c", [segment(each) for each in range(SEGMENTS_PER_CLAIM_MAX + 1)], LEASE_MS),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(command: ClaimJob) -> None:
    outcome = World().do(command)
    assert isinstance(outcome, Refused)
    assert outcome.refusal == Refusal.INVALID_REQUEST


def test_there_are_not_more_claims_than_allowed_and_those_that_are_over_make_room() -> None:
    world = World()
    commands = [ClaimJob(world.now_ms, f"j{each}", "c", [segment(each)], LEASE_MS) for each in range(CLAIMS_MAX)]
    assert set(map(type, world.entry(commands)[0])) == {Done}
    assert claim(world, CLAIMS_MAX) == Refusal.OVERLOADED
    world.wait(LEASE_MS)
    assert claim(world, CLAIMS_MAX) == Refusal.NONE


def test_there_are_not_more_claimed_segments_than_allowed() -> None:
    world = World()
    for job in range(CLAIMED_SEGMENTS_MAX // SEGMENTS_PER_CLAIM_MAX):
        first = job * SEGMENTS_PER_CLAIM_MAX
        assert claim(world, *range(first, first + SEGMENTS_PER_CLAIM_MAX), job=f"j{job}") == Refusal.NONE
    assert claim(world, CLAIMED_SEGMENTS_MAX, job="more") == Refusal.OVERLOADED
    release(world, "j0", "c1")
    assert claim(world, CLAIMED_SEGMENTS_MAX, job="more") == Refusal.NONE


def test_a_listing_tells_which_segments_are_claimed_until_the_lease_is_over() -> None:
    world = World()
    world.topic()
    commands = [world.segment_command((1, 0, [])) for _ in range(2)]
    world.entry(commands)
    world.do(ClaimJob(world.now_ms, "j", "c", [commands[1].segment_id], LEASE_MS))

    def claimed() -> list[bool]:
        view = queries.segments(world.state, SegmentsQuery(0, 0, [], 10, condemned=True))
        return [each.claimed for each in view.segments]

    assert claimed() == [False, True]
    world.state.clock_ms += LEASE_MS  # as by a command that comes before the next tick
    assert claimed() == [False, False]
    world.do(Tick(world.now_ms + LEASE_MS))
    assert not world.state.claims
