"""Committed offsets: which members may commit when, and which offsets are read back."""

from typing import Any

import pytest

from penstock.contracts.commands import CommitOffsets, DeleteGroup, OffsetToCommit, PerItem, RaiseLevel
from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL
from penstock.contracts.queries.groups import CommittedOffset, GroupOffsetsQuery, GroupTopicPartitions
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, AnswerLimits, GroupLimits, Limits
from tests.unit.sequencer.core.core_world import World

ACCEPTED = PerItem([Rejection.NONE])


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(partitions=2)
    return world


def read(world: World, *wanted: tuple[str, list[int]], group_id: str = "g") -> list[CommittedOffset]:
    topics = [GroupTopicPartitions(*each) for each in wanted] or None
    return queries.group_offsets(world.state, GroupOffsetsQuery(0, group_id, topics)).offsets


def test_offsets_are_read_back_as_committed(world: World) -> None:
    assert world.commit_offset(5, metadata="note") == ACCEPTED
    assert world.commit_offset(7, partition=1) == ACCEPTED
    assert world.commit_offset(6) == ACCEPTED
    assert read(world) == [CommittedOffset("t", 0, 6, 1, ""), CommittedOffset("t", 1, 7, 1, "")]


def test_an_offset_that_was_not_committed_reads_as_minus_one(world: World) -> None:
    world.commit_offset(5)
    assert read(world, ("t", [1, 0]), ("none", [3])) == [
        CommittedOffset("t", 1, -1, -1, ""),
        CommittedOffset("t", 0, 5, 1, ""),
        CommittedOffset("none", 3, -1, -1, ""),
    ]
    assert read(world, group_id="none") == []


@pytest.mark.parametrize("limits", [AnswerLimits(names_listed_max=2), AnswerLimits(listed_bytes_max=80)])
def test_all_offsets_come_in_pages_also_those_of_one_topic(limits: AnswerLimits) -> None:
    world = World(Limits(answers=limits))
    for number, (topic, partitions) in enumerate({"b": 3, "a": 2, "d": 1}.items(), 1):
        world.topic(topic, number=number, partitions=partitions)
        for partition in reversed(range(partitions)):
            world.commit_offset(5, topic=topic, partition=partition)

    def page(*after: Any) -> str:
        view = queries.group_offsets(world.state, GroupOffsetsQuery(0, "g", None, after=after))
        return " ".join(f"{each.topic}{each.partition}" for each in view.offsets) + " and more" * view.is_more

    assert page("", -1) == "a0 a1 and more"
    assert page("a", 1) == "b0 b1 and more"
    assert page("b", 1) == "b2 d0"
    assert page("b", 2) == page("c", 7) == "d0"  # also after a topic without offsets
    assert page("d", 0) == ""


def test_named_partitions_come_in_the_order_of_the_query_as_far_as_a_page_goes(world: World) -> None:
    world.use_limits(Limits(answers=AnswerLimits(listed_bytes_max=100)))
    world.commit_offset(5, metadata="x" * 60)
    named = [GroupTopicPartitions("t", [1, 0]), GroupTopicPartitions("none", [0])]
    view = queries.group_offsets(world.state, GroupOffsetsQuery(0, "g", named, after=("", -1)))
    assert ([(each.topic, each.partition, each.offset) for each in view.offsets], view.is_more) == (
        [("t", 1, -1), ("t", 0, 5)],
        True,
    )
    assert len(read(world, ("t", [1, 0]), ("none", [0]))) == 3  # a sender that cannot page gets all


def test_unknown_partitions_and_large_metadata_are_rejected_item_by_item(world: World) -> None:
    items = [
        OffsetToCommit("none", 0, 1, 1, ""),
        OffsetToCommit("t", 2, 1, 1, ""),
        OffsetToCommit("t", -1, 1, 1, ""),
        OffsetToCommit("t", 0, 1, 1, "ä" * (DEFAULT_LIMITS.offsets.offset_metadata_bytes_max // 2)),
        OffsetToCommit("t", 1, 1, 1, "ä" * (DEFAULT_LIMITS.offsets.offset_metadata_bytes_max // 2) + "x"),
    ]
    outcome = world.do(CommitOffsets(world.now_ms, "g", -1, "", None, items))
    unknown = Rejection.UNKNOWN_TOPIC
    assert outcome == PerItem([unknown, unknown, unknown, Rejection.NONE, Rejection.METADATA_TOO_LARGE])


def test_a_member_commits_only_in_its_generation(world: World) -> None:
    generation = world.classic.stable_group("m1")
    assert world.commit_offset(generation=generation, member_id="m1") == ACCEPTED
    assert world.commit_offset(generation=generation + 1, member_id="m1").rejection == Rejection.ILLEGAL_GENERATION
    assert world.commit_offset(generation=-1, member_id="m1").rejection == Rejection.ILLEGAL_GENERATION
    assert world.commit_offset(generation=generation, member_id="m2").rejection == Rejection.UNKNOWN_MEMBER


def test_only_members_commit_while_a_group_has_members(world: World) -> None:
    world.classic.stable_group("m1")
    assert world.commit_offset().rejection == Rejection.UNKNOWN_MEMBER


def test_members_may_commit_while_the_group_prepares_but_not_before_the_assignment(world: World) -> None:
    generation = world.classic.stable_group("m1")
    world.classic.join("m2")
    assert world.commit_offset(generation=generation, member_id="m1") == ACCEPTED
    world.classic.join("", "m1")
    rejected = world.commit_offset(generation=generation + 1, member_id="m1")
    assert rejected.rejection == Rejection.REBALANCE_IN_PROGRESS


def test_a_commit_counts_as_activity(world: World) -> None:
    generation = world.classic.stable_group("m1")
    world.commit_offset(generation=generation, member_id="m1")
    assert world.group().members["m1"].active_sequence == world.state.sequence


def test_an_empty_group_accepts_commits_without_membership_and_none_of_an_old_generation(world: World) -> None:
    generation = world.classic.stable_group("m1")
    world.classic.leave(("m1", None))
    assert world.commit_offset() == ACCEPTED
    assert world.commit_offset(generation=generation, member_id="m1").rejection == Rejection.UNKNOWN_MEMBER


def test_a_generation_in_a_group_that_does_not_exist_is_illegal(world: World) -> None:
    assert world.commit_offset(generation=0, member_id="m1").rejection == Rejection.ILLEGAL_GENERATION
    assert world.state.groups == {}


def test_a_generation_of_an_unknown_group_has_its_own_error_from_its_level_on(
    world: World,
) -> None:
    world.do(RaiseLevel(world.now_ms, OFFSET_EXPIRY_LEVEL))
    assert world.commit_offset(generation=0, member_id="m1").rejection == Rejection.UNKNOWN_GROUP
    assert world.state.groups == {}


def test_groups_made_by_commits_are_limited_too(world: World) -> None:
    world.use_limits(Limits(groups=GroupLimits(groups_max=0)))
    assert world.commit_offset().rejection == Rejection.OVERLOADED
    long = CommitOffsets(world.now_ms, "x" * (DEFAULT_LIMITS.groups.group_id_length_max + 1), -1, "", None, [])
    assert world.do(long).rejection == Rejection.INVALID_GROUP


def test_all_offsets_together_have_a_limit_of_bytes(world: World) -> None:
    world.commit_offset(1, metadata="note")
    world.use_limits(Limits(groups=GroupLimits(group_bytes_max=world.state.group_bytes)))
    assert world.commit_offset(2, metadata="notes") == PerItem([Rejection.OVERLOADED])
    assert world.commit_offset(2, partition=1) == PerItem([Rejection.OVERLOADED])
    assert world.commit_offset(3, metadata="none") == ACCEPTED
    world.do(DeleteGroup(world.now_ms, "g"))
    assert world.state.group_bytes == 0
