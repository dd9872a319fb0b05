"""Task leases keep janitors from doing the same work twice: a task has one holder, and then rests until it is due."""

import pytest

from penstock.contracts.commands import NO_TASK, TASKS, Done, EndTaskLease, Rejected, TakeTaskLease, TaskLeaseTaken
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from tests.unit.sequencer.core.core_world import World

PERIOD_MS = 60_000
LEASE_MS = 10_000


@pytest.fixture
def world() -> World:
    world = World()
    world.wait(1)
    return world


def take(world: World, holder: str = "j1", first: int = 0, stop: int = 3, number: int = NO_TASK) -> TaskLeaseTaken:
    taken = world.do(TakeTaskLease(world.now_ms, holder, first, stop, PERIOD_MS, LEASE_MS, number))
    assert isinstance(taken, TaskLeaseTaken)
    assert taken.clock_ms == world.now_ms
    return taken


def end(world: World, number: int, holder: str = "j1", *, done: bool = True) -> None:
    assert world.do(EndTaskLease(world.now_ms, holder, number, done)) == Done()


def test_each_holder_gets_another_task_until_all_are_leased(world: World) -> None:
    assert [take(world, f"j{each}").number for each in range(4)] == [0, 1, 2, NO_TASK]


def test_a_janitor_without_a_task_learns_when_to_ask_again(world: World) -> None:
    first_ms = world.now_ms
    for each in range(3):
        take(world, f"j{each}")
        world.wait(1_000)
    assert take(world, "late") == TaskLeaseTaken(NO_TASK, world.now_ms, first_ms + LEASE_MS)
    for each in range(3):
        end(world, each, f"j{each}")
    assert take(world, "late") == TaskLeaseTaken(NO_TASK, world.now_ms, world.now_ms + PERIOD_MS)


def test_a_done_task_is_due_after_its_period_and_the_one_done_first_comes_first(world: World) -> None:
    done_ms = {}
    for number in (1, 0, 2):
        assert take(world, first=number, stop=number + 1).number == number
        end(world, number)
        done_ms[number] = world.now_ms
        world.wait(1_000)
    world.wait(done_ms[1] + PERIOD_MS - 1 - world.now_ms)
    assert take(world) == TaskLeaseTaken(NO_TASK, world.now_ms, done_ms[1] + PERIOD_MS)
    world.wait(1)
    assert take(world).number == 1
    world.wait(5_000)
    assert [take(world, holder).number for holder in ("j2", "j3")] == [0, 2]


def test_a_task_that_was_given_up_is_still_due(world: World) -> None:
    assert take(world).number == 0
    end(world, 0, done=False)
    assert take(world, "j2").number == 0


def test_a_holder_that_asks_again_gets_its_task_with_a_renewed_lease(world: World) -> None:
    assert take(world).number == 0
    world.wait(LEASE_MS - 1)
    assert take(world).number == 0
    world.wait(LEASE_MS - 1)
    assert take(world, "j2").number == 1
    assert take(world, number=0).number == 0
    assert take(world, first=2, stop=3).number == 2, "it gets another task of another range"


def test_an_expired_lease_is_lost(world: World) -> None:
    assert take(world).number == 0
    world.wait(LEASE_MS)
    assert take(world, number=0) == TaskLeaseTaken(NO_TASK, world.now_ms, 0)
    assert take(world, "j2").number == 0
    end(world, 0)
    assert take(world, "j2", number=0).number == 0, "the former holder cannot end it"


def test_ending_a_lease_of_another_holder_changes_nothing(world: World) -> None:
    take(world)
    before = encode_state(world.state)
    world.state.sequence -= 3
    for holder, number in (("j2", 0), ("j1", 1), ("j1", 2**40)):
        end(world, number, holder)
    assert encode_state(world.state) == before


def test_task_leases_are_in_snapshots(world: World) -> None:
    take(world)
    end(world, 0)
    take(world)
    again = decode_state(encode_state(world.state))
    assert list(again.tasks_ended_ms) == [world.now_ms, *[0] * (TASKS - 1)]
    world.state = again
    assert take(world, "j2").number == 2


@pytest.mark.parametrize(
    "command",
    [
        TakeTaskLease(1, "", 0, 1, 1, 1),
        TakeTaskLease(1, "j" * 257, 0, 1, 1, 1),
        TakeTaskLease(1, "j", -1, 1, 1, 1),
        TakeTaskLease(1, "j", 1, 1, 1, 1),
        TakeTaskLease(1, "j", 0, TASKS + 1, 1, 1),
        TakeTaskLease(1, "j", 0, 1, -1, 1),
        TakeTaskLease(1, "j", 0, 1, DEFAULT_LIMITS.maintenance.task_period_max_ms + 1, 1),
        TakeTaskLease(1, "j", 0, 1, 1, 0),
        TakeTaskLease(1, "j", 0, 1, 1, DEFAULT_LIMITS.maintenance.task_lease_max_ms + 1),
    ],
)
def test_an_invalid_task_lease_is_rejected(world: World, command: TakeTaskLease) -> None:
    outcome = world.do(command)
    assert isinstance(outcome, Rejected)
    assert outcome.rejection == Rejection.INVALID_REQUEST
    assert not world.state.task_leases
