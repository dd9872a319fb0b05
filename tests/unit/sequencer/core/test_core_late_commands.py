"""From level 1 on, a command that is journaled long after it was sent undoes nothing newer."""

import pytest

from penstock.contracts.commands import (
    CommitOffsets as Commit,
    DeleteGroup,
    DeleteTopic,
    Done,
    OffsetToCommit,
    PerItem,
    RaiseLevel,
)
from penstock.contracts.levels import LATE_JOINS_LEVEL, OFFSET_TOPIC_IDS_LEVEL
from penstock.contracts.queries.groups import GroupOffsetsQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from tests.unit.sequencer.core.core_world import World, topic_id

NEW_LEVEL, LAST_LEVEL = OFFSET_TOPIC_IDS_LEVEL, OFFSET_TOPIC_IDS_LEVEL - 1
ACCEPTED = PerItem([Rejection.NONE])
STALE = PerItem([Rejection.STALE])


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(partitions=2)
    world.do(RaiseLevel(world.now_ms, 1))
    return world


@pytest.fixture
def later(world: World) -> World:
    """The world at the level from which on a join can come too late."""
    world.do(RaiseLevel(world.now_ms, LATE_JOINS_LEVEL))
    return world


def committed(world: World) -> list[int]:
    return [each.offset for each in queries.group_offsets(world.state, GroupOffsetsQuery(0, "g", None)).offsets]


def test_an_offset_does_not_go_back_to_one_that_was_sent_before_the_newer_one_was_seen(world: World) -> None:
    seen = world.state.sequence
    assert world.commit_offset(5, seen=seen) == ACCEPTED
    assert world.commit_offset(9, seen=world.state.sequence) == ACCEPTED
    assert world.commit_offset(5, seen=seen) == STALE
    assert committed(world) == [9]


def test_a_late_commit_does_not_undo_a_rewind(world: World) -> None:
    seen = world.state.sequence
    world.commit_offset(9, seen=seen)
    assert world.commit_offset(3, seen=world.state.sequence) == ACCEPTED
    assert world.commit_offset(9, seen=seen) == STALE
    assert committed(world) == [3]


def test_the_same_commit_twice_is_accepted_twice(world: World) -> None:
    seen = world.state.sequence
    assert world.commit_offset(5, seen=seen) == ACCEPTED
    assert world.commit_offset(5, seen=seen) == ACCEPTED


def test_a_rejected_sender_can_send_an_accepted_commit(world: World) -> None:
    seen = world.state.sequence
    world.commit_offset(9, seen=seen)
    assert world.commit_offset(5, seen=seen) == STALE
    assert world.commit_offset(5, seen=world.state.sequence) == ACCEPTED
    assert committed(world) == [5]


def test_one_late_offset_does_not_prevent_the_others(world: World) -> None:
    seen = world.state.sequence
    world.commit_offset(9, seen=seen)
    items = [OffsetToCommit("t", partition, 5, 1, "") for partition in (0, 1)]
    outcome = world.do(Commit(world.now_ms, "g", -1, "", None, items, seen))
    assert outcome == PerItem([Rejection.STALE, Rejection.NONE])
    assert committed(world) == [9, 5]


@pytest.mark.parametrize(("level", "rejection"), [(LAST_LEVEL, Rejection.NONE), (NEW_LEVEL, Rejection.UNKNOWN_TOPIC)])
def test_an_offset_of_a_topic_that_was_made_again_is_rejected_if_the_client_gave_its_id(
    world: World, level: int, rejection: Rejection
) -> None:
    world.do(RaiseLevel(world.now_ms, level))
    item = OffsetToCommit("t", 0, 5, 1, "")
    assert world.do(Commit(world.now_ms, "g", -1, "", None, [item], topic_ids={"t": topic_id(1)})) == ACCEPTED
    world.do(DeleteTopic(world.now_ms, "", topic_id(1)))
    world.topic(number=2)
    late = Commit(world.now_ms, "g", -1, "", None, [item], topic_ids={"t": topic_id(1)})
    assert world.do(late) == PerItem([rejection])
    assert world.do(Commit(world.now_ms, "g", -1, "", None, [item])) == ACCEPTED


def test_a_commit_without_a_seen_sequence_is_never_late(world: World) -> None:
    world.commit_offset(9, seen=world.state.sequence)
    assert world.commit_offset(5) == ACCEPTED


def test_before_level_1_nothing_is_late() -> None:
    world = World()
    world.topic()
    world.commit_offset(9, seen=0)
    assert world.commit_offset(5, seen=0) == ACCEPTED
    assert world.group().offsets["t"][0].sequence == 0


def test_an_offset_from_before_level_1_can_be_replaced_by_any_commit() -> None:
    world = World()
    world.topic()
    world.commit_offset(9, seen=0)
    world.do(RaiseLevel(world.now_ms, 1))
    assert world.commit_offset(5, seen=0) == ACCEPTED
    assert world.commit_offset(9, seen=0) == STALE


def test_a_late_commit_does_not_restore_a_deleted_group(world: World) -> None:
    seen = world.state.sequence
    world.commit_offset(9, seen=seen)
    assert world.do(DeleteGroup(world.now_ms, "g", world.state.sequence)) == Done()
    assert world.commit_offset(9, seen=seen) == STALE
    assert committed(world) == []
    assert world.commit_offset(1, seen=world.state.sequence) == ACCEPTED


def test_a_late_commit_does_not_apply_to_another_topic_with_the_same_name(world: World) -> None:
    seen = world.state.sequence
    world.commit_offset(9, seen=seen)
    world.do(DeleteTopic(world.now_ms, "", topic_id(1)))
    world.topic(number=2)
    assert world.commit_offset(9, seen=seen) == STALE
    assert committed(world) == []


def test_a_late_deletion_keeps_a_group_that_has_committed_since(world: World) -> None:
    world.commit_offset(9, seen=world.state.sequence)
    seen = world.state.sequence
    assert world.do(DeleteGroup(world.now_ms, "g", seen)) == Done()
    world.commit_offset(1, seen=world.state.sequence)
    assert world.do(DeleteGroup(world.now_ms, "g", seen)).rejection == Rejection.STALE
    assert committed(world) == [1]
    assert world.do(DeleteGroup(world.now_ms, "g", world.state.sequence)) == Done()


def test_a_late_join_of_a_replaced_static_member_does_not_fence_the_present_one(world: World) -> None:
    world.classic.join("i-1", instance="i")
    world.classic.join("i-2", instance="i")
    assert world.classic.join("i-1", instance="i").rejection == Rejection.FENCED_INSTANCE
    assert world.group().static_members == {"i": "i-2"}


def test_before_level_1_a_replaced_static_member_takes_its_place_again() -> None:
    world = World()
    world.classic.join("i-1", instance="i")
    world.classic.join("i-2", instance="i")
    world.classic.join("i-1", instance="i")
    assert world.group().static_members == {"i": "i-1"}


def test_a_late_join_does_not_take_the_place_of_a_member_that_joined_since(later: World) -> None:
    seen = later.state.sequence
    later.classic.join("i-2", instance="i", seen=seen)
    assert later.classic.join("i-1", instance="i", seen=seen).rejection == Rejection.STALE
    assert later.group().static_members == {"i": "i-2"}
    assert later.classic.heartbeat("i-2", 0, instance="i") != Rejection.FENCED_INSTANCE


def test_a_join_that_has_seen_a_static_member_takes_its_place(later: World) -> None:
    later.classic.join("i-1", instance="i", seen=later.state.sequence)
    seen = later.state.sequence
    later.commit_offset(3, generation=0, member_id="i-1", instance="i")
    later.classic.join("i-2", instance="i", seen=seen)
    assert later.group().static_members == {"i": "i-2"}
    assert later.classic.join("i-3", instance="i", seen=seen).rejection == Rejection.STALE, (
        "another member has taken the place since"
    )
    later.classic.join("i-3", instance="i", seen=later.state.sequence)
    assert later.group().static_members == {"i": "i-3"}


def test_a_static_join_sent_twice_is_answered_twice(later: World) -> None:
    seen = later.state.sequence
    first = later.classic.join("i-1", instance="i", seen=seen)
    assert later.classic.join("i-1", instance="i", seen=seen) == first


def test_a_static_join_may_come_late_if_the_place_is_free(later: World) -> None:
    seen = later.state.sequence
    later.classic.join("i-1", instance="i", seen=seen)
    later.classic.leave(("i-1", "i"))
    later.classic.join("i-2", instance="i", seen=seen)
    assert later.group().static_members == {"i": "i-2"}


def test_a_join_without_a_seen_sequence_takes_any_place(later: World) -> None:
    later.classic.join("i-1", instance="i", seen=later.state.sequence)
    later.classic.join("i-2", instance="i")
    assert later.group().static_members == {"i": "i-2"}


def test_before_their_level_joins_are_not_late(world: World) -> None:
    seen = world.state.sequence
    world.classic.join("i-2", instance="i", seen=seen)
    world.classic.join("i-1", instance="i", seen=seen)
    assert world.group().static_members == {"i": "i-1"}
    world.do(RaiseLevel(world.now_ms, LATE_JOINS_LEVEL))
    world.classic.join("i-3", instance="i", seen=seen)
    assert world.group().static_members == {"i": "i-3"}, "the entry by which the member joined is not known"


def test_a_late_removal_of_an_instance_does_not_remove_one_that_joined_since(later: World) -> None:
    seen = later.state.sequence
    later.classic.join("m", seen=seen)
    later.classic.join("i-1", instance="i", seen=seen)
    outcome = later.classic.leave_seen(("m", None), ("", "i"), seen=seen)
    assert outcome.rejection == Rejection.STALE
    assert list(later.group().members) == ["m", "i-1"], "all or nothing, so the command can be sent again"
    assert later.classic.leave_seen(("i-1", "i"), seen=seen) == PerItem([Rejection.NONE]), "a member id is used once"
    later.classic.join("i-2", instance="i", seen=later.state.sequence)
    assert later.classic.leave_seen(("m", None), ("", "i"), seen=later.state.sequence) == PerItem([Rejection.NONE] * 2)


def test_snapshots_hold_the_entries_by_which_static_members_joined(later: World) -> None:
    seen = later.state.sequence
    later.classic.join("i-1", instance="i", seen=seen)
    later.state = decode_state(encode_state(later.state))
    assert later.classic.join("i-2", instance="i", seen=seen).rejection == Rejection.STALE
