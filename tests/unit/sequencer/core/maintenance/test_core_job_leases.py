"""Job leases divide the work between compactors: by job and by segment, for a limited time, bounded in number."""

import pytest

from penstock.contracts.commands import Done, LeaseJob, Rejected, ReleaseJob, Tick
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.queries.compaction import SegmentsQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from tests.unit.sequencer.core.core_world import World

LEASE_MS = 60_000


def segment(number: int) -> SegmentId:
    return new_segment_id(1, number.to_bytes(10, "big"))


def lease(world: World, *segments: int, job: str = "j", holder: str = "c1", lease_ms: int = LEASE_MS) -> Rejection:
    outcome = world.do(LeaseJob(world.now_ms, job, holder, [segment(each) for each in segments], lease_ms))
    return Rejection.NONE if isinstance(outcome, Done) else outcome.rejection


def release(world: World, job: str = "j", holder: str = "c1") -> None:
    assert world.do(ReleaseJob(world.now_ms, job, holder)) == Done()


def test_a_segment_is_leased_to_one_job_at_a_time() -> None:
    world = World()
    assert lease(world, 1, 2) == Rejection.NONE
    assert lease(world, 3, 2, job="k") == Rejection.ALREADY_LEASED
    assert lease(world, 3, job="k") == Rejection.NONE


def test_a_job_has_one_holder_at_a_time() -> None:
    world = World()
    assert lease(world, 1) == Rejection.NONE
    assert lease(world, 1, holder="c2") == Rejection.ALREADY_LEASED
    assert lease(world, 9, holder="c2") == Rejection.ALREADY_LEASED


def test_a_job_lease_that_is_sent_again_is_renewed() -> None:
    world = World()
    lease(world, 1)
    world.wait(LEASE_MS - 1)
    assert lease(world, 1) == Rejection.NONE
    world.wait(LEASE_MS - 1)
    assert lease(world, 1, job="k", holder="c2") == Rejection.ALREADY_LEASED
    world.wait(1)
    assert lease(world, 1, job="k", holder="c2") == Rejection.NONE


def test_a_job_lease_ends_without_a_tick() -> None:
    world = World()
    lease(world, 1)
    world.now_ms += LEASE_MS
    assert lease(world, 1, holder="c2") == Rejection.NONE


def test_the_segments_of_a_job_lease_do_not_change() -> None:
    world = World()
    lease(world, 1, 2)
    assert lease(world, 1) == Rejection.INVALID_REQUEST
    assert lease(world, 1, 2) == Rejection.NONE


def test_a_released_job_is_free_and_only_its_holder_releases_it() -> None:
    world = World()
    lease(world, 1)
    release(world, holder="c2")
    assert lease(world, 1, job="k") == Rejection.ALREADY_LEASED
    release(world)
    release(world)
    assert lease(world, 1, job="k") == Rejection.NONE


@pytest.mark.parametrize(
    "command",
    [
        LeaseJob(1, "", "c", [segment(1)], LEASE_MS),
        LeaseJob(1, "j", "", [segment(1)], LEASE_MS),
        LeaseJob(1, "j" * 257, "c", [segment(1)], LEASE_MS),
        LeaseJob(1, "j", "c" * 257, [segment(1)], LEASE_MS),
        LeaseJob(1, "j", "c", [], LEASE_MS),
        LeaseJob(1, "j", "c", [segment(1), segment(1)], LEASE_MS),
        LeaseJob(1, "j", "c", [b"short"], LEASE_MS),
        LeaseJob(1, "j", "c", [segment(1)], 0),
        LeaseJob(1, "j", "c", [segment(1)], DEFAULT_LIMITS.maintenance.job_lease_max_ms + 1),
        LeaseJob(
            1,
            "j",
            "c",
            [segment(each) for each in range(DEFAULT_LIMITS.maintenance.segments_per_lease_max + 1)],
            LEASE_MS,
        ),
    ],
)
def test_an_invalid_job_lease_is_rejected(command: LeaseJob) -> None:
    outcome = World().do(command)
    assert isinstance(outcome, Rejected)
    assert outcome.rejection == Rejection.INVALID_REQUEST


def test_the_number_of_job_leases_is_limited_and_expired_ones_do_not_count() -> None:
    world = World()
    commands = [
        LeaseJob(world.now_ms, f"j{each}", "c", [segment(each)], LEASE_MS)
        for each in range(DEFAULT_LIMITS.maintenance.job_leases_max)
    ]
    assert set(map(type, world.entry(commands)[0])) == {Done}
    assert lease(world, DEFAULT_LIMITS.maintenance.job_leases_max) == Rejection.OVERLOADED
    world.wait(LEASE_MS)
    assert lease(world, DEFAULT_LIMITS.maintenance.job_leases_max) == Rejection.NONE


def test_the_number_of_leased_segments_is_limited() -> None:
    world = World()
    for job in range(
        DEFAULT_LIMITS.maintenance.leased_segments_max // DEFAULT_LIMITS.maintenance.segments_per_lease_max
    ):
        first = job * DEFAULT_LIMITS.maintenance.segments_per_lease_max
        assert (
            lease(world, *range(first, first + DEFAULT_LIMITS.maintenance.segments_per_lease_max), job=f"j{job}")
            == Rejection.NONE
        )
    assert lease(world, DEFAULT_LIMITS.maintenance.leased_segments_max, job="more") == Rejection.OVERLOADED
    release(world, "j0", "c1")
    assert lease(world, DEFAULT_LIMITS.maintenance.leased_segments_max, job="more") == Rejection.NONE


def test_a_listing_reports_leased_segments_until_the_lease_ends() -> None:
    world = World()
    world.topic()
    commands = [world.segment_command((1, 0, [])) for _ in range(2)]
    world.entry(commands)
    world.do(LeaseJob(world.now_ms, "j", "c", [commands[1].segment_id], LEASE_MS))

    def leased() -> list[bool]:
        view = queries.segments(world.state, SegmentsQuery(0, 0, [], 10, dead=True))
        return [each.leased for each in view.segments]

    assert leased() == [False, True]
    world.state.clock_ms += LEASE_MS  # as with a command that comes before the next Tick
    assert leased() == [False, False]
    world.do(Tick(world.now_ms + LEASE_MS))
    assert not world.state.leases
