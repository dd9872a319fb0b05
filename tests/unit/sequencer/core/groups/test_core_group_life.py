"""Groups after the join: assignments, heartbeats, leaving, expiry, static members, deletion."""

import pytest

from penstock.contracts.commands import (
    DeleteGroup,
    Done,
    ExpireMember,
    Joined,
    LeaveGroup,
    LeavingMember,
    PerItem,
    Rejected,
    Synced,
    SyncGroup,
    Waiting,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups import timers
from penstock_sequencer.core.state.cluster import COMPLETING, EMPTY, PREPARING, STABLE
from penstock_sequencer.core.state.limits import GroupLimits, Limits
from tests.unit.sequencer.core.core_world import World


@pytest.fixture
def world() -> World:
    return World()


def completing(world: World, *members: str) -> int:
    """A group whose members joined and have not synced; returns its generation."""
    for member in members:
        world.classic.join(member)
    world.classic.finish_initial_delay()
    return world.group().generation


def test_followers_wait_until_the_leader_brings_the_assignments(world: World) -> None:
    generation = completing(world, "m1", "m2")
    assert world.classic.sync("m2", generation) == Waiting("m2", generation)
    assert world.classic.wait_outcome("sync", "m2", generation) == Waiting("m2", generation)
    assert world.classic.sync("m1", generation, {"m1": b"one", "m2": b"two"}) == Synced("consumer", "range", b"one")
    assert world.effects is not None
    assert world.effects.groups == ["g"]
    assert world.classic.wait_outcome("sync", "m2", generation) == Synced("consumer", "range", b"two")
    assert world.group().state == STABLE


def test_a_follower_that_syncs_after_the_leader_is_answered_at_once(world: World) -> None:
    generation = completing(world, "m1", "m2")
    world.classic.sync("m1", generation, {"m2": b"two", "stranger": b"x"})
    assert world.classic.sync("m2", generation) == Synced("consumer", "range", b"two")
    assert world.classic.sync("m1", generation) == Synced("consumer", "range", b"")


def test_a_sync_must_fit_group_member_generation_and_protocol(world: World) -> None:
    assert world.classic.sync("m1", 1).rejection == Rejection.UNKNOWN_MEMBER
    generation = completing(world, "m1")
    assert world.classic.sync("m2", generation).rejection == Rejection.UNKNOWN_MEMBER
    assert world.classic.sync("m1", generation + 1).rejection == Rejection.ILLEGAL_GENERATION
    assert world.classic.sync("m1", generation, kind="connect").rejection == Rejection.INCONSISTENT_PROTOCOL
    assert world.classic.sync("m1", generation, protocol="sticky").rejection == Rejection.INCONSISTENT_PROTOCOL
    assert world.classic.sync("m1", generation, kind=None, protocol=None) == Synced("consumer", "range", b"")


def test_a_sync_during_a_rebalance_is_rejected_so_that_the_member_joins_again(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    world.classic.join("m3")
    assert world.classic.sync("m2", generation).rejection == Rejection.REBALANCE_IN_PROGRESS


def test_a_follower_that_waits_for_its_assignment_gets_an_error_at_a_new_rebalance(world: World) -> None:
    generation = completing(world, "m1", "m2")
    world.classic.sync("m2", generation)
    world.classic.join("m3")
    assert world.effects is not None
    assert world.effects.groups == ["g"]
    assert world.classic.wait_outcome("sync", "m2", generation) == Rejected(Rejection.REBALANCE_IN_PROGRESS)


def test_a_late_answer_to_a_join_makes_no_member_the_second_leader_of_a_generation(world: World) -> None:
    generation = completing(world, "m1", "m2")
    assert world.classic.wait_outcome("join", "m2", 0).leader == "m1"
    assert world.classic.leave(("m1", None)) == [Rejection.NONE]
    expected = Joined(generation, "consumer", "range", "", "m2", [])
    assert world.classic.wait_outcome("join", "m2", 0) == expected
    assert world.classic.join("m2") == expected
    assert world.classic.sync("m2", generation).rejection == Rejection.REBALANCE_IN_PROGRESS
    assert world.classic.join("", "m2").leader == "m2"


def test_assignments_of_a_generation_that_was_never_finished_are_void(world: World) -> None:
    generation = completing(world, "m1", "m2")
    world.classic.join("m3")
    world.classic.join("", "m1")
    world.classic.join("", "m2")
    assert world.classic.sync("m1", generation, {"m1": b"old"}).rejection == Rejection.ILLEGAL_GENERATION
    assert all(member.assignment == b"" for member in world.group().members.values())


def test_members_that_join_and_never_sync_are_dropped_after_the_rebalance_timeout(world: World) -> None:
    generation = completing(world, "m1", "m2")
    world.classic.sync("m1", generation, {})
    world.wait(60_000)
    assert list(world.group().members) == ["m1"]
    assert world.group().state == PREPARING
    assert world.classic.join("", "m1").generation == generation + 1


def test_a_follower_that_synced_replaces_a_leader_that_never_does(world: World) -> None:
    generation = completing(world, "m1", "m2")
    world.classic.sync("m2", generation)
    world.wait(60_000)
    assert world.classic.wait_outcome("sync", "m2", generation) == Rejected(Rejection.REBALANCE_IN_PROGRESS)
    assert world.classic.join("", "m2").leader == "m2"


def test_heartbeats_report_a_members_state(world: World) -> None:
    assert world.classic.heartbeat("m1", 1) == Rejection.UNKNOWN_MEMBER
    generation = completing(world, "m1", "m2")
    assert world.classic.heartbeat("m1", generation) == Rejection.NONE
    world.classic.sync("m1", generation, {})
    assert world.classic.heartbeat("m1", generation) == Rejection.NONE
    assert world.classic.heartbeat("m1", generation + 1) == Rejection.ILLEGAL_GENERATION
    assert world.classic.heartbeat("m9", generation) == Rejection.UNKNOWN_MEMBER
    world.classic.leave(("m2", None))
    assert world.classic.heartbeat("m1", generation) == Rejection.REBALANCE_IN_PROGRESS


def test_a_member_that_leaves_makes_the_others_rebalance(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    assert world.classic.leave(("m1", None)) == [Rejection.NONE]
    joined = world.classic.join("", "m2")
    assert (joined.generation, joined.leader) == (generation + 1, "m2")


def test_the_last_member_that_leaves_empties_the_group(world: World) -> None:
    generation = world.classic.stable_group("m1")
    world.classic.leave(("m1", None))
    assert (world.group().state, world.group().generation) == (EMPTY, generation + 1)
    assert queries.next_deadline_ms(world.state) is None


def test_leaving_during_a_rebalance_may_complete_it(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    assert world.classic.join("m3") == Waiting("m3", generation)
    world.classic.join("", "m1")
    world.classic.leave(("m2", None))
    assert world.classic.wait_outcome("join", "m3", generation).generation == generation + 1


def test_leaving_is_rejected_for_each_member_by_itself(world: World) -> None:
    assert world.classic.leave(("m1", None)) == [Rejection.UNKNOWN_MEMBER]
    world.classic.join("p", require_known_member=True)
    world.classic.join("s", instance="i")
    world.classic.join("m1")
    rejections = world.classic.leave(
        ("x", None), ("", "none"), ("x", "i"), ("p", None), ("", None), ("m1", None), ("", "i")
    )
    unknown, none = Rejection.UNKNOWN_MEMBER, Rejection.NONE
    assert rejections == [unknown, unknown, Rejection.FENCED_INSTANCE, none, unknown, none, none]
    assert world.group().members == {}
    assert world.group().pending == {}


def expire(world: World, member_id: str, active_sequence: int) -> None:
    assert world.do(ExpireMember(world.now_ms, "g", member_id, active_sequence)) == Done()


def test_a_silent_member_is_dropped_and_the_others_rebalance(world: World) -> None:
    world.classic.stable_group("m1", "m2")
    expire(world, "m1", world.state.sequence)
    assert list(world.group().members) == ["m2"]
    assert world.group().state == PREPARING


def test_an_expiry_is_void_after_later_activity_in_the_journal(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    seen = world.state.sequence
    world.classic.sync("m2", generation)
    expire(world, "m2", seen)
    assert list(world.group().members) == ["m1", "m2"]
    expire(world, "m2", seen + 1)
    assert list(world.group().members) == ["m1"]


def test_a_member_that_waits_for_an_answer_does_not_expire(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    world.classic.join("m3")
    expire(world, "m3", world.state.sequence)
    world.classic.join("", "m1")
    world.classic.join("", "m2")
    world.classic.sync("m3", generation + 1)
    expire(world, "m3", world.state.sequence)
    assert list(world.group().members) == ["m1", "m2", "m3"]
    watched = {member_id: waiting for _, member_id, _, _, waiting in queries.watched_members(world.state)}
    assert watched == {"m1": False, "m2": False, "m3": True}


def test_the_end_of_a_wait_counts_as_activity(world: World) -> None:
    world.classic.join("m1")
    joined_at = world.state.sequence
    world.classic.finish_initial_delay()
    ((_, _, session_ms, active_sequence, _),) = queries.watched_members(world.state)
    assert session_ms == 10_000
    assert active_sequence > joined_at


def test_expiry_of_an_unknown_group_or_member_does_nothing(world: World) -> None:
    expire(world, "m1", 0)
    world.classic.join("p", require_known_member=True)
    expire(world, "x", 0)
    assert list(world.group().pending) == ["p"]
    expire(world, "p", 0)
    assert world.group().pending == {}


def static_group(world: World) -> int:
    """A stable group of the static members a (the leader) and b; returns its generation."""
    world.classic.join("a1", instance="a")
    world.classic.join("b1", instance="b")
    world.classic.finish_initial_delay()
    world.classic.sync("a1", 1, {"a1": b"A", "b1": b"B"}, instance="a")
    world.classic.sync("b1", 1, instance="b")
    return 1


def test_a_static_member_that_returns_keeps_its_assignment_without_a_rebalance(world: World) -> None:
    generation = static_group(world)
    assert world.classic.join("b2", instance="b") == Joined(generation, "consumer", "range", "a1", "b2", [])
    assert world.classic.sync("b2", generation, instance="b") == Synced("consumer", "range", b"B")
    assert world.group().state == STABLE


def test_a_static_leader_that_returns_has_nothing_to_assign(world: World) -> None:
    generation = static_group(world)
    joined = world.classic.join("a2", instance="a")
    assert (joined.generation, joined.leader, joined.skip_assignment) == (generation, "a2", True)
    assert [member.member_id for member in joined.members] == ["b1", "a2"]
    assert world.group().state == STABLE


def test_a_static_member_that_returns_with_another_protocol_causes_a_rebalance(world: World) -> None:
    world.classic.join("a1", instance="a", protocols={"x": b"", "y": b""})
    world.wait(1_000)
    world.classic.sync("a1", 1, {"a1": b"A"}, instance="a", protocol="x")
    joined = world.classic.join("a2", instance="a", protocols={"y": b"", "x": b""})
    assert (joined.generation, joined.protocol, joined.skip_assignment) == (2, "y", False)


def test_a_replaced_member_is_fenced_in_every_command(world: World) -> None:
    world.topic()
    generation = static_group(world)
    world.classic.join("b2", instance="b")
    fenced = Rejection.FENCED_INSTANCE
    assert world.classic.heartbeat("b1", generation, "b") == fenced
    assert world.classic.sync("b1", generation, instance="b").rejection == fenced
    assert world.classic.join("", "b1", instance="b").rejection == fenced
    assert world.commit_offset(generation=generation, member_id="b1", instance="b").rejection == fenced
    assert world.classic.leave(("b1", "b")) == [fenced]
    assert world.classic.wait_outcome("sync", "b1", generation) == Rejected(fenced)
    assert world.classic.heartbeat("b2", generation, "b") == Rejection.NONE


def test_an_unknown_instance_is_an_unknown_member(world: World) -> None:
    generation = static_group(world)
    assert world.classic.heartbeat("a1", generation, "c") == Rejection.UNKNOWN_MEMBER
    assert world.classic.join("", "a1", instance="c").rejection == Rejection.UNKNOWN_MEMBER


def test_a_static_member_that_returns_before_the_assignment_causes_a_rebalance(world: World) -> None:
    world.classic.join("a1", instance="a")
    world.classic.join("b1", instance="b")
    world.classic.finish_initial_delay()
    assert world.classic.join("b2", instance="b") == Waiting("b2", 1)
    assert world.group().state == PREPARING


def test_a_static_member_that_waits_can_be_replaced(world: World) -> None:
    world.classic.join("a1", instance="a")
    assert world.classic.join("a2", instance="a") == Waiting("a2", 0)
    assert world.classic.wait_outcome("join", "a1", 0) == Rejected(Rejection.FENCED_INSTANCE)
    world.wait(1_000)
    assert world.classic.wait_outcome("join", "a2", 0).leader == "a2"


def test_a_repeated_static_join_fences_no_member(world: World) -> None:
    static_group(world)
    first = world.classic.join("b2", instance="b")
    assert world.classic.join("b2", instance="b") == first
    assert list(world.group().fenced) == ["b1"]


def test_static_members_that_miss_a_rebalance_stay_until_they_expire(world: World) -> None:
    static_group(world)
    world.classic.join("c1", instance="c")
    world.classic.join("", "a1", instance="a")
    world.wait(60_000)
    assert world.group().state == COMPLETING
    assert list(world.group().members) == ["a1", "b1", "c1"]
    expire(world, "b1", world.state.sequence)
    assert list(world.group().members) == ["a1", "c1"]


def test_a_rebalance_that_no_static_member_joined_keeps_waiting(world: World) -> None:
    generation = static_group(world)
    world.classic.join("m1")
    world.classic.leave(("m1", None))
    world.wait(60_000)
    assert (world.group().state, world.group().generation) == (PREPARING, generation)
    assert queries.next_deadline_ms(world.state) == world.now_ms + 60_000


def test_the_number_of_known_replaced_members_is_limited(world: World) -> None:
    world.use_limits(Limits(groups=GroupLimits(group_fenced_max=2)))
    for number in range(5):
        world.classic.join(f"a{number}", instance="a")
    assert list(world.group().fenced) == ["a2", "a3"]


def test_only_an_empty_group_is_deleted(world: World) -> None:
    world.topic()
    world.classic.stable_group("m1")
    assert world.do(DeleteGroup(world.now_ms, "g")).rejection == Rejection.GROUP_NOT_EMPTY
    world.classic.leave(("m1", None))
    world.commit_offset()
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()
    assert world.state.groups == {}
    assert world.do(DeleteGroup(world.now_ms, "g")).rejection == Rejection.UNKNOWN_GROUP


def test_a_wait_for_an_unknown_group_or_member_is_rejected(world: World) -> None:
    assert world.classic.wait_outcome("join", "m1", 0) == Rejected(Rejection.UNKNOWN_MEMBER)
    world.classic.join("m1")
    assert world.classic.wait_outcome("join", "m2", 0) == Rejected(Rejection.UNKNOWN_MEMBER)
    assert world.classic.wait_outcome("else", "m1", 0).rejection == Rejection.INVALID_REQUEST


def test_the_commands_of_a_group_need_its_id(world: World) -> None:
    for command in (
        SyncGroup(0, "", 0, "m", None, None, None, []),
        LeaveGroup(0, "", []),
    ):
        assert world.do(command).rejection == Rejection.INVALID_GROUP


def test_leaving_an_unknown_group_rejects_each_member(world: World) -> None:
    leaving = [LeavingMember("a", None), LeavingMember("", "i")]
    outcome = world.do(LeaveGroup(world.now_ms, "none", leaving))
    assert outcome == PerItem([Rejection.UNKNOWN_MEMBER] * 2)


def test_stale_alarms_of_moved_deadlines_do_not_accumulate(world: World) -> None:
    world.classic.join("m1")
    for duration_ms in range(1_000):
        timers.set_deadline(world.state, "g", world.now_ms + 1_000 - duration_ms)
        assert len(world.state.alarms) <= 67
    assert queries.next_deadline_ms(world.state) == world.now_ms + 1
