"""Share groups' targets are made some time apart, so that a thousand members may join together (KIP-1263)."""

from collections.abc import Callable

import pytest

from penstock.contracts.commands import (
    AlterShareOffsets,
    CreatePartitions,
    CreateTopic,
    DeleteShareOffsets,
    DeleteTopic,
    RaiseLevel,
    ShareOffset,
    TopicPartitions,
)
from penstock.contracts.levels import FIRST_SUBSCRIPTION_LEVEL, SHARES_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import Limits, ShareLimits
from tests.unit.sequencer.core.core_world import World, check_invariants, share_world, topic_id

T, U = topic_id(1), topic_id(2)
INTERVAL_MS, SOON_MS, USUAL_MS = 1_000, 1_000, 5_000


@pytest.fixture
def world() -> World:
    return share_world(**{"share.assignment.interval.ms": str(INTERVAL_MS), "share.auto.offset.reset": "latest"})


def targets_made(world: World) -> set[tuple[int, int]]:
    """Record, from now on, the epoch and the time of each target that is made for the group's members."""
    made: set[tuple[int, int]] = set()

    def look(state: State) -> None:
        group = state.share_groups["g"]
        if group.assigned_ms:
            made.add((group.assignment_epoch, group.assigned_ms))

    world.on_entry.append(look)
    return made


def test_a_member_that_joins_within_the_interval_gets_nothing_at_the_current_epoch_and_returns_soon(
    world: World,
) -> None:
    first, second = world.shares.join("one"), world.shares.join("two")
    assert (first.member_epoch, first.heartbeat_interval_ms, first.assignment) == (
        1,
        USUAL_MS,
        [TopicPartitions(T, [0])],
    )
    assert (second.member_epoch, second.heartbeat_interval_ms, second.assignment) == (1, SOON_MS, [])
    sequence = world.state.sequence
    assert world.shares.heartbeat("two", 1).heartbeat_interval_ms == SOON_MS
    assert world.state.sequence == sequence, "nothing is journaled before a target is due"
    world.wait(INTERVAL_MS)
    answer = world.shares.heartbeat("two", 1)
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (
        2,
        USUAL_MS,
        [TopicPartitions(T, [0])],
    )


def test_targets_are_made_once_for_all_members_that_joined_within_the_interval(world: World) -> None:
    made = targets_made(world)
    for number in range(50):
        world.shares.join(str(number))
    assert len(made) == 1
    world.wait(INTERVAL_MS)
    assert len(made) == 2
    world.wait(INTERVAL_MS)
    assert len(made) == 2, "nothing has changed since the last target"
    assert all(member.target == {T: [0]} for member in world.shares.group.members.values())
    check_invariants(world.state)


def test_after_a_pause_and_in_an_empty_group_targets_are_made_at_once(world: World) -> None:
    world.shares.join("one")
    world.wait(INTERVAL_MS)
    assert world.shares.join("two").assignment == [TopicPartitions(T, [0])]
    world.shares.leave("one")
    world.shares.leave("two")
    assert world.shares.join("three").assignment == [TopicPartitions(T, [0])]
    assert world.shares.group.target_due_ms == 0


def test_records_written_before_the_next_target_are_not_missed(world: World) -> None:
    world.topic("u", number=2)
    world.shares.join("one")
    world.shares.join("two", "u")
    world.shares.write(3, number=2)
    world.do(CreatePartitions(world.now_ms, "t", 2))
    world.wait(INTERVAL_MS)
    assert world.shares.group.partitions[U][0].start == 0
    assert world.shares.group.partitions[T].keys() == {0, 1}


def test_a_member_loses_unsubscribed_topics_at_once(world: World) -> None:
    world.topic("u", number=2)
    world.shares.join("one", "t", "u")
    world.shares.heartbeat("one", 1)
    assert world.shares.heartbeat("one", 1, ["u"]).assignment == [TopicPartitions(U, [0])]


def test_a_topic_deleted_before_the_next_target_is_not_assigned(world: World) -> None:
    world.shares.join("one")
    world.shares.join("two")
    world.do(DeleteTopic(world.now_ms, "t", T))
    check_invariants(world.state)
    world.wait(INTERVAL_MS)
    check_invariants(world.state)
    assert world.shares.heartbeat("one", 1).assignment == []


def test_locks_end_in_time_while_targets_are_due() -> None:
    configs = {"share.assignment.interval.ms": "15000", "share.record.lock.duration.ms": "1000"}
    world = share_world("one", records=2, **configs)
    world.shares.acquire("one")
    world.shares.join("two")
    world.wait(1_100)
    assert world.shares.windows() == [(0, 1)]
    world.wait(15_000)
    assert world.shares.group.members["two"].target == {T: [0]}


def test_a_restored_state_makes_targets_at_the_same_time(world: World) -> None:
    world.shares.join("one")
    world.shares.join("two")
    world.state = decode_state(encode_state(world.state), world.state.limits)
    world.wait(INTERVAL_MS - 1)
    assert not world.shares.group.members["two"].target
    world.wait(1)
    assert world.shares.group.members["two"].target == {T: [0]}


def test_targets_that_take_much_work_are_made_further_apart() -> None:
    one_each_ms = Limits(share=ShareLimits(share_fragments_per_pause_ms=1))
    world = share_world(limits=one_each_ms, **{"share.assignment.interval.ms": "2"})
    world.do(CreatePartitions(world.now_ms, "t", 8))
    world.shares.join("one")
    world.shares.join("two")
    fragments = 2 + 8  # subscriptions and partitions
    world.wait(fragments - 1)
    assert not world.shares.group.members["two"].target
    world.wait(1)
    assert len(world.shares.group.members["two"].target[T]) == 4


@pytest.mark.parametrize(
    "join", [lambda world: world.shares.join("three"), lambda world: world.shares.heartbeat("two", 2, ["t", "u"])]
)
def test_the_subscriptions_of_all_members_together_are_limited(join: Callable[[World], object]) -> None:
    world = share_world("one", "two", limits=Limits(share=ShareLimits(share_subscriptions_max=3)))
    world.shares.heartbeat("one", 1, ["t", "u"])
    answer = join(world)
    assert getattr(answer, "rejection", None) == Rejection.GROUP_FULL
    world.shares.heartbeat("one", 3, ["t"])
    assert getattr(join(world), "rejection", None) is None


def test_the_assignment_of_the_last_partitions_does_not_depend_on_a_snapshot() -> None:
    world = share_world("one", limits=Limits(share=ShareLimits(share_partitions_max=3)))
    world.shares.configure("h", **{"share.assignment.interval.ms": "0"})
    world.shares.join("two", "u", group_id="h")
    world.shares.heartbeat(
        "one", 1, ["t", "u"]
    )  # the groups subscribe "u" in another order than that in which they were made
    again = decode_state(encode_state(world.state), world.state.limits)
    next_sequence = again.sequence + 1
    for state in (world.state, again):
        apply_entry(state, next_sequence, [[CreateTopic(world.now_ms, "u", U, 2, {})]])
    assert encode_state(again) == encode_state(world.state)
    assert again.share_partition_count == 3


def test_the_first_member_of_a_group_subscribes_no_more_topics_than_a_group_may() -> None:
    world = share_world(limits=Limits(share=ShareLimits(share_subscriptions_max=2)))
    assert getattr(world.shares.join("one", "t", "u", "v", group_id="old"), "rejection", None) is None
    world.do(RaiseLevel(world.now_ms, FIRST_SUBSCRIPTION_LEVEL))
    assert world.shares.join("one", "t", "u", "v").rejection == Rejection.GROUP_FULL
    assert "g" not in world.state.share_groups
    assert getattr(world.shares.join("one", "t", "u"), "rejection", None) is None


def test_a_deleted_topic_ends_its_groups_in_one_order_at_all_replicas() -> None:
    """A replica that read a snapshot has the groups of a topic in another order than its peers."""
    world = World(level=SHARES_LEVEL)
    world.topic("t")
    world.topic("u", number=2)
    for group_id, topic in (("a", "u"), ("b", "t"), ("a", "t")):
        offsets = [ShareOffset(topic, 0, 0)]
        world.do(AlterShareOffsets(world.now_ms, group_id, offsets, principal=f"User:{group_id}"))
    world.do(DeleteShareOffsets(world.now_ms, "a", ["u"]))
    restored = World()
    restored.state, restored.now_ms = decode_state(encode_state(world.state)), world.now_ms
    for each in (world, restored):
        each.do(DeleteTopic(each.now_ms, "t", topic_id(1)))
        assert each.state.share_groups == {}
    assert encode_state(restored.state) == encode_state(world.state)
