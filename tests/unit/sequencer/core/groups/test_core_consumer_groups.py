"""Consumer groups (KIP-848): each member's partitions and epochs, and the errors for members with other ones."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    AlterGroupConfigs,
    CommitOffsets,
    ConfigChange,
    ConfigOperation,
    ConsumerHeartbeat,
    ConsumerMembership,
    CreatePartitions,
    DeleteGroup,
    DeleteTopic,
    Done,
    ExpireMember,
    GroupProtocol,
    JoinGroup,
    OffsetToCommit,
    PerItem,
    RaiseLevel,
    Rejected,
    TopicPartitions,
)
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL, KAFKA_VALUES_LEVEL, SUBSCRIBED_TOPICS_LEVEL
from penstock.contracts.queries.consumer_groups import ConsumerGroupsQuery, ConsumerHeartbeatQuery
from penstock.contracts.queries.groups import DescribeGroupsQuery, GroupOffsetsQuery, GroupsQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import ConsumerLimits, Limits
from tests.unit.sequencer.core.core_consumers import Client, held, numbers
from tests.unit.sequencer.core.core_world import World, topic_id

T = topic_id(1)


@pytest.fixture
def world() -> World:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    world.topic(partitions=6)
    return world


def assignment(*partitions: int, number: int = 1) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id(number), list(partitions))]


def rejection(answer: Any) -> Rejection:
    assert isinstance(answer, Rejected), answer
    return answer.rejection


def test_the_only_member_gets_everything_at_once(world: World) -> None:
    assert world.consumers.join("m", "t") == ConsumerMembership("m", 1, 5_000, assignment(0, 1, 2, 3, 4, 5))
    assert world.group().state == "Stable"


def test_a_heartbeat_that_changes_nothing_is_not_journaled(world: World) -> None:
    world.consumers.join("m", "t")
    before = world.state.sequence
    assert world.consumers.heartbeat("m", 1) == ConsumerMembership("m", 1, 5_000, None)
    assert world.consumers.heartbeat("m", 1, owned=assignment(0, 1, 2, 3, 4, 5), topics=["t"]).assignment is None
    assert world.state.sequence == before


def test_a_complete_heartbeat_gets_the_whole_assignment(world: World) -> None:
    world.consumers.join("m", "t")
    answer = world.consumers.heartbeat("m", 1, owned=[], topics=["t"], rebalance_timeout_ms=60_000)
    assert answer.assignment == assignment(0, 1, 2, 3, 4, 5)


def test_a_new_member_gets_partitions_only_when_their_owner_has_given_them_back(world: World) -> None:
    one = world.consumers.client("one", "t")
    two = world.consumers.client("two", "t")
    assert (two.epoch, two.owned) == (2, {}), "in the group, without another member's partitions"
    assert world.group().state == "Reconciling"
    revoking = world.consumers.heartbeat("one", 1)
    assert (revoking.member_epoch, revoking.assignment) == (1, assignment(0, 1, 2))
    assert world.consumers.beat(two).assignment is None, "the owner has not given them back yet"
    given_back = world.consumers.heartbeat("one", 1, owned=assignment(0, 1, 2))
    assert given_back == ConsumerMembership("one", 2, 5_000, None)
    assert world.consumers.beat(two) == ConsumerMembership("two", 2, 5_000, assignment(3, 4, 5))
    assert world.group().state == "Stable"
    one.epoch = 2


def test_waiting_members_must_send_the_next_heartbeat_soon(world: World) -> None:
    world.consumers.client("one", "t")
    assert world.consumers.join("two", "t").heartbeat_interval_ms == 1_000


def test_partitions_of_a_leaving_member_go_to_the_others(world: World) -> None:
    one, two = world.consumers.client("one", "t"), world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    assert world.consumers.leave("two") == ConsumerMembership("two", -1, 0, None)
    world.consumers.settle(one)
    assert numbers(one) == [0, 1, 2, 3, 4, 5]
    assert rejection(world.consumers.heartbeat("two", 2)) == Rejection.UNKNOWN_MEMBER


def test_a_silent_member_is_removed(world: World) -> None:
    one, two = world.consumers.client("one", "t"), world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    watched = {each[1]: each[2] for each in queries.watched_members(world.state)}
    assert watched == {"one": 45_000, "two": 45_000}
    assert world.consumers.expire("two") == Done()
    world.consumers.settle(one)
    assert len(numbers(one)) == 6


def test_a_member_with_later_activity_is_not_silent(world: World) -> None:
    one = world.consumers.client("one", "t")
    before = world.consumers.member("one").active_sequence
    world.consumers.client("two", "t")
    world.consumers.beat(one)
    world.do(ExpireMember(world.now_ms, "g", "one", before))
    assert world.consumers.member("one") is not None


def test_a_member_that_does_not_give_back_within_its_rebalance_timeout_is_removed(world: World) -> None:
    world.consumers.client("slow", "t", rebalance_timeout_ms=5_000)
    two = world.consumers.client("two", "t")
    world.consumers.heartbeat("slow", 1)
    world.wait(4_999)
    assert rejection(world.consumers.heartbeat("slow", 7)) == Rejection.FENCED_MEMBER_EPOCH
    world.wait(1)
    assert rejection(world.consumers.heartbeat("slow", 1)) == Rejection.UNKNOWN_MEMBER
    world.consumers.settle(two)
    assert len(numbers(two)) == 6


def test_other_epochs_than_the_members_are_fenced(world: World) -> None:
    one = world.consumers.client("one", "t")
    two = world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    assert rejection(world.consumers.heartbeat("one", one.epoch + 1)) == Rejection.FENCED_MEMBER_EPOCH
    assert rejection(world.consumers.heartbeat("one", one.epoch - 1)) == Rejection.FENCED_MEMBER_EPOCH, (
        "it does not report its partitions"
    )


def test_a_member_whose_answer_was_lost_may_be_one_epoch_behind(world: World) -> None:
    one = world.consumers.client("one", "t")
    two = world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    behind = world.consumers.heartbeat(
        "one", one.epoch - 1, owned=assignment(0, 1, 2), topics=["t"], rebalance_timeout_ms=9
    )
    assert (behind.member_epoch, behind.assignment) == (one.epoch, assignment(0, 1, 2))
    taken = world.consumers.heartbeat("one", one.epoch - 1, owned=assignment(0, 1, 2, 3))
    assert rejection(taken) == Rejection.FENCED_MEMBER_EPOCH, "it has another member's partition"


def test_a_member_that_joins_again_has_nothing_and_gets_its_partitions_back(world: World) -> None:
    one, two = world.consumers.client("one", "t"), world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    again = world.consumers.join("one", "t")
    assert (again.member_epoch, again.assignment) == (one.epoch, assignment(*numbers(one)))
    assert world.group().consumer.epoch == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": assignment(1)}, "TopicPartitions must be empty when (re-)joining."),
        ({"topics": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
    ],
)
def test_an_invalid_heartbeat_gets_kafkas_message(world: World, changes: dict[str, Any], message: str) -> None:
    given = {"rebalance_timeout_ms": 9, "topics": ["t"], "owned": [], "member_id": "m", "member_epoch": 0} | changes
    answer = world.consumers.heartbeat(given.pop("member_id"), given.pop("member_epoch"), **given)
    assert answer == Rejected(Rejection.INVALID_REQUEST, message)


def test_an_unknown_assignor_is_rejected(world: World) -> None:
    answer = world.consumers.join("m", "t", assignor="sticky")
    assert answer == Rejected(
        Rejection.UNSUPPORTED_ASSIGNOR, "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    )
    assert not world.state.groups


def test_the_assignor_is_the_one_that_most_members_name(world: World) -> None:
    for name in ("a", "b", "c"):
        world.consumers.join(name, "t", assignor="range" if name != "a" else "uniform")
    assert world.group().consumer.assignor == "range"  # type: ignore[union-attr]


def test_a_group_that_does_not_exist_can_only_be_joined(world: World) -> None:
    assert rejection(world.consumers.heartbeat("m", 1)) == Rejection.UNKNOWN_GROUP
    assert rejection(world.consumers.heartbeat("m", -1)) == Rejection.UNKNOWN_GROUP


def test_a_full_group_accepts_no_more_members(world: World) -> None:
    world.use_limits(Limits(consumers=ConsumerLimits(consumer_members_max=1)))
    world.consumers.join("one", "t")
    answer = world.consumers.join("two", "t")
    message = "The consumer group has reached its maximum capacity of 1 members."
    assert answer == Rejected(Rejection.GROUP_FULL, message)
    assert isinstance(world.consumers.join("one", "t"), ConsumerMembership)


# Static members (KIP-345)


def test_a_static_member_returns_to_its_partitions_and_no_other_member_moves(world: World) -> None:
    one, two = world.consumers.client("one", "t", instance_id="i"), world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    before = world.group().consumer.epoch  # type: ignore[union-attr]
    assert world.consumers.heartbeat("one", -2, instance_id="i") == ConsumerMembership("one", -2, 0, None)
    world.consumers.settle(two)
    assert len(numbers(two)) == 3, "the partitions of the first member are kept for it"
    again = world.consumers.join("one-again", "t", instance_id="i")
    assert (again.member_epoch, held(again.assignment)) == (before, one.owned)
    assert world.group().consumer.epoch == before  # type: ignore[union-attr]
    assert rejection(world.consumers.heartbeat("one", before, instance_id="i")) == Rejection.FENCED_INSTANCE


def test_an_instance_id_stays_with_a_member_that_did_not_leave(world: World) -> None:
    world.consumers.client("one", "t", instance_id="i")
    assert rejection(world.consumers.join("two", "t", instance_id="i")) == Rejection.UNRELEASED_INSTANCE
    assert rejection(world.consumers.heartbeat("two", 1, instance_id="i")) == Rejection.FENCED_INSTANCE
    assert rejection(world.consumers.heartbeat("two", 1, instance_id="j")) == Rejection.UNKNOWN_MEMBER


def test_a_static_member_that_stays_away_is_removed_in_the_end(world: World) -> None:
    one, two = world.consumers.client("one", "t", instance_id="i"), world.consumers.client("two", "t")
    world.consumers.settle(one, two)
    world.consumers.heartbeat("one", -2, instance_id="i")
    world.consumers.expire("one")
    world.consumers.settle(two)
    assert len(numbers(two)) == 6


def test_a_static_member_may_leave_for_good(world: World) -> None:
    world.consumers.client("one", "t", instance_id="i")
    world.consumers.leave("one", instance_id="i")
    assert world.group().state == "Empty"


# Topics that are made, grown and deleted


def test_a_new_topic_is_assigned_to_members_that_subscribe_it(world: World) -> None:
    one = world.consumers.client("one", "t", "later")
    world.topic("later", partitions=2, number=2)
    assert world.group().state == "Assigning"
    world.consumers.settle(one)
    assert numbers(one, 2) == [0, 1]


def test_a_topic_that_grows_is_assigned_anew(world: World) -> None:
    one = world.consumers.client("one", "t")
    world.do(CreatePartitions(world.now_ms, "t", 8))
    world.consumers.settle(one)
    assert numbers(one) == list(range(8))


def test_a_deleted_topic_has_no_owner(world: World) -> None:
    one = world.consumers.client("one", "t")
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.consumers.settle(one)
    assert one.owned == {}
    assert world.group().state == "Stable"


def test_a_topic_without_subscribers_disturbs_no_group(world: World) -> None:
    world.consumers.client("one", "t")
    world.topic("other", number=2)
    assert world.group().state == "Stable"


def test_a_changed_configuration_disturbs_no_group(world: World) -> None:
    world.consumers.client("one", "t")
    changes = [ConfigChange("retention.ms", ConfigOperation.SET, "1000")]
    assert world.do(AlterConfigs(world.now_ms, "t", changes)) == Done()
    assert world.group().state == "Stable"


def test_a_pattern_subscribes_all_matching_topics_and_later_ones(world: World) -> None:
    world.topic("orders.eu", partitions=1, number=2)
    one = world.consumers.client("one", topics=None, pattern=r"orders\..*")
    assert one.owned == {topic_id(2): [0]}
    world.topic("orders.us", partitions=1, number=3)
    world.topic("reorders.us", partitions=1, number=4)
    world.consumers.settle(one)
    assert one.owned == {topic_id(2): [0], topic_id(3): [0]}
    world.do(DeleteTopic(world.now_ms, "orders.eu", bytes(16)))
    world.consumers.settle(one)
    assert one.owned == {topic_id(3): [0]}


def test_an_invalid_pattern_is_rejected_and_changes_nothing(world: World) -> None:
    answer = world.consumers.join("m", topics=None, pattern="(")
    assert rejection(answer) == Rejection.INVALID_PATTERN
    assert answer.message == "SubscribedTopicRegex `(` is not a valid regular expression: missing )."
    world.consumers.join("m", "t")
    assert rejection(world.consumers.heartbeat("m", 1, pattern="a**")) == Rejection.INVALID_PATTERN
    assert world.consumers.member("m").pattern == ""


def test_the_more_topics_there_are_the_fewer_patterns_may_be_in_use(world: World) -> None:
    world.use_limits(Limits(consumers=ConsumerLimits(pattern_matches_max=4)))
    world.topic("u", number=2)
    for name, pattern in (("one", "t"), ("two", "u"), ("three", "u")):
        assert isinstance(world.consumers.join(name, pattern=pattern, topics=None), ConsumerMembership)
    assert rejection(world.consumers.join("four", pattern=".*", topics=None)) == Rejection.INVALID_PATTERN
    world.topic("v", number=3)
    restored = decode_state(encode_state(world.state), world.state.limits)
    assert [*restored.subscriptions.patterns] == ["t", "u"], "existing members keep their patterns"
    world.consumers.leave("one")
    world.consumers.leave("two")
    world.consumers.leave("three")
    assert isinstance(world.consumers.join("four", pattern=".*", topics=None), ConsumerMembership)


def test_a_member_may_subscribe_something_else(world: World) -> None:
    world.topic("other", partitions=2, number=2)
    one = world.consumers.client("one", "t")
    answer = world.consumers.heartbeat("one", 1, topics=["other"])
    assert answer.assignment == [], "it gives back first"
    world.consumers.take(one, answer)
    world.consumers.settle(one)
    assert one.owned == {topic_id(2): [0, 1]}


# Late commands (ADR 0008)


def test_a_late_report_of_given_back_partitions_does_not_give_them_to_others(world: World) -> None:
    one = world.consumers.client("one", "t")
    late_seen = world.state.sequence - 1
    world.consumers.client("two", "t")
    assert world.consumers.heartbeat("one", 1).assignment == assignment(0, 1, 2)
    late = world.consumers.heartbeat("one", one.epoch, owned=[], seen_sequence=late_seen)
    assert rejection(late) == Rejection.STALE
    assert world.consumers.member("one").revoking == {T: [3, 4, 5]}
    assert isinstance(
        world.consumers.heartbeat("one", 1, owned=[], seen_sequence=world.state.sequence), ConsumerMembership
    )


def test_a_late_subscription_does_not_replace_a_later_one(world: World) -> None:
    before = world.state.sequence
    world.consumers.join("one", "t", seen_sequence=before)
    world.consumers.heartbeat("one", 1, topics=["u"], seen_sequence=world.state.sequence)
    assert rejection(world.consumers.join("one", "t", seen_sequence=before)) == Rejection.STALE
    assert world.consumers.member("one").topics == ["u"]


def test_a_late_join_does_not_bring_back_a_departed_member(world: World) -> None:
    before = world.state.sequence
    world.consumers.join("one", "t", seen_sequence=before)
    world.consumers.leave("one", seen_sequence=world.state.sequence)
    assert rejection(world.consumers.join("one", "t", seen_sequence=before)) == Rejection.STALE
    assert isinstance(world.consumers.join("one", "t", seen_sequence=world.state.sequence), ConsumerMembership)


def test_a_late_join_brings_back_no_member_of_a_deleted_group(world: World) -> None:
    before = world.state.sequence
    world.consumers.join("one", "t", seen_sequence=before)
    world.consumers.leave("one")
    world.do(DeleteGroup(world.now_ms, "g"))
    assert rejection(world.consumers.join("one", "t", seen_sequence=before)) == Rejection.STALE
    assert not world.state.groups


def test_departed_members_are_known_for_a_while_and_in_snapshots(world: World) -> None:
    bare = len(encode_state(world.state))
    world.consumers.join("one", "t")
    world.consumers.leave("one")
    world.wait(5 * 60_000)
    world.consumers.join("two", "t")
    world.consumers.leave("two")
    world.wait(5 * 60_000 - 1)
    assert [*world.state.departed] == [("g", "one"), ("g", "two")]
    assert decode_state(encode_state(world.state)).departed == world.state.departed
    world.wait(1)
    assert [*world.state.departed] == [("g", "two")]
    world.do(DeleteGroup(world.now_ms, "g"))
    world.wait(5 * 60_000)
    assert not world.state.departed
    assert len(encode_state(world.state)) <= bare + 100, "the state has no trace of them"


def test_the_number_of_known_departed_members_is_limited(world: World) -> None:
    world.use_limits(Limits(consumers=ConsumerLimits(departed_members_max=2)))
    for name in ("one", "two", "three"):
        world.consumers.join(name, "t")
        world.consumers.leave(name)
    assert [*world.state.departed] == [("g", "two"), ("g", "three")]


def test_a_late_leave_does_not_remove_a_member_that_joined_again(world: World) -> None:
    world.consumers.join("one", "t")
    before = world.state.sequence
    world.consumers.leave("one", seen_sequence=before)
    world.consumers.join("one", "t", seen_sequence=world.state.sequence)
    assert world.consumers.leave("one", seen_sequence=before) == ConsumerMembership("one", -1, 0, None)
    assert world.consumers.member("one").assigned


def test_a_repeated_heartbeat_gets_the_same_answer(world: World) -> None:
    before = world.state.sequence
    assert world.consumers.join("one", "t", seen_sequence=before) == world.consumers.join(
        "one", "t", seen_sequence=before
    )


def test_the_second_copys_answer_has_the_assignment_of_the_first(world: World) -> None:
    one, two = world.consumers.client("one", "t"), world.consumers.client("two", "t")
    world.consumers.beat(one)
    world.consumers.beat(one)
    world.consumers.copies = 2
    world.consumers.beat(two)
    assert numbers(two) == world.consumers.member("two").assigned[T] == [3, 4, 5]


# Offsets


def committed(world: World, epoch: int, member_id: str) -> Any:
    offsets = [OffsetToCommit("t", 0, 5, -1, "")]
    return world.do(CommitOffsets(world.now_ms, "g", epoch, member_id, None, offsets))


def test_offsets_are_committed_at_the_members_epoch_only(world: World) -> None:
    world.consumers.join("one", "t")
    assert committed(world, 1, "one") == PerItem([Rejection.NONE])
    assert committed(world, 0, "one") == Rejected(Rejection.STALE_MEMBER_EPOCH)
    assert committed(world, 2, "one") == Rejected(Rejection.STALE_MEMBER_EPOCH)
    assert committed(world, 1, "other") == Rejected(Rejection.UNKNOWN_MEMBER)
    assert committed(world, -1, "") == Rejected(Rejection.UNKNOWN_MEMBER)


def test_an_empty_group_accepts_commits_of_clients_that_are_no_members(world: World) -> None:
    world.consumers.join("one", "t")
    world.consumers.leave("one")
    assert committed(world, -1, "") == PerItem([Rejection.NONE])


def test_offsets_are_read_by_members_at_their_epoch_and_by_clients_that_name_no_member(world: World) -> None:
    world.consumers.join("one", "t")
    committed(world, 1, "one")

    def read(member_id: str | None, epoch: int) -> Any:
        query = GroupOffsetsQuery(0, "g", None, member_id=member_id, member_epoch=epoch)
        view = queries.group_offsets(world.state, query)
        return view.rejection or [each.offset for each in view.offsets]

    assert read(None, -1) == read("one", 1) == [5]
    assert read("one", 2) == Rejection.STALE_MEMBER_EPOCH
    assert read("two", 1) == Rejection.UNKNOWN_MEMBER


def test_a_commit_does_not_extend_the_timeout_of_a_member_that_must_give_back(world: World) -> None:
    world.consumers.client("slow", "t", rebalance_timeout_ms=5_000)
    world.consumers.client("two", "t")
    world.consumers.heartbeat("slow", 1)
    committed(world, 1, "slow")
    world.wait(5_000)
    assert rejection(world.consumers.heartbeat("slow", 1)) == Rejection.UNKNOWN_MEMBER


# Descriptions of groups for administrators


def test_groups_are_listed_and_described_as_consumer_groups(world: World) -> None:
    world.consumers.client("one", "t", rack_id="r")
    (summary,) = queries.groups(world.state, GroupsQuery(0, [])).groups
    assert (summary.protocol_type, summary.state, summary.is_consumer) == ("consumer", "Stable", True)
    (group,) = queries.QUERIES["consumer_groups"](world.state, ConsumerGroupsQuery(0, ["g"])).groups
    assert (group.state, group.epoch, group.assignment_epoch, group.assignor) == ("Stable", 1, 1, "uniform")
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.topics) == ("one", "r", ["t"])
    assert member.assigned == member.target == assignment(0, 1, 2, 3, 4, 5)
    assert group.topic_names == [(T, "t")]
    (classic,) = queries.describe_groups(world.state, DescribeGroupsQuery(0, ["g"])).groups
    assert classic.state == "Dead"
    (absent,) = queries.QUERIES["consumer_groups"](world.state, ConsumerGroupsQuery(0, ["x"])).groups
    assert (absent.state, absent.is_classic) == ("", False)


def test_only_an_empty_group_is_deleted(world: World) -> None:
    world.consumers.join("one", "t")
    assert world.do(DeleteGroup(world.now_ms, "g")) == Rejected(Rejection.GROUP_NOT_EMPTY)
    world.consumers.leave("one")
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()


def test_the_next_member_decides_the_kind_of_an_empty_group(world: World) -> None:
    world.consumers.join("one", "t")
    world.consumers.leave("one")
    epoch = world.group().generation
    joined = world.do(join_group(world))
    assert joined.generation == epoch
    assert world.group().consumer is None


def join_group(world: World) -> JoinGroup:
    return JoinGroup(
        world.now_ms, "g", "", "c", None, False, "client", "/host", 10_000, 300, "connect", [GroupProtocol("x", b"")]
    )


def test_a_classic_group_of_another_protocol_type_stays_classic(world: World) -> None:
    world.do(join_group(world))
    answer = world.consumers.join("one", "t")
    assert answer == Rejected(Rejection.UNKNOWN_GROUP, "Group g is not a consumer group.")


@pytest.mark.parametrize(("level", "why"), [(0, Rejection.OVERLOADED), (2, Rejection.UNSUPPORTED_YET)])
def test_the_protocol_is_unsupported_below_its_level_and_unavailable_in_a_new_cluster(
    level: int, why: Rejection
) -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    world.state.level = level
    command = consumer_heartbeat()
    view = queries.QUERIES["consumer_heartbeat"](world.state, ConsumerHeartbeatQuery(0, command))
    assert view.outcome.rejection == why


def consumer_heartbeat() -> Any:
    return ConsumerHeartbeat(1, "g", "m", 0, None, None, 9, "", "", ["t"], None, None, [])


def test_intervals_are_the_clusters_configurations(world: World) -> None:
    changes = [
        ConfigChange("group.consumer.heartbeat.interval.ms", ConfigOperation.SET, "700"),
        ConfigChange("group.consumer.session.timeout.ms", ConfigOperation.SET, "9000"),
    ]
    assert world.do(AlterConfigs(world.now_ms, "", changes)) == Done()
    assert world.consumers.join("one", "t").heartbeat_interval_ms == 700
    assert [each[2] for each in queries.watched_members(world.state)] == [9_000]
    too_long = [ConfigChange("group.consumer.heartbeat.interval.ms", ConfigOperation.SET, "9000")]
    assert isinstance(world.do(AlterConfigs(world.now_ms, "", too_long)), Rejected)


def test_the_intervals_of_one_group_are_its_own_configurations(world: World) -> None:
    world.do(RaiseLevel(world.now_ms, KAFKA_VALUES_LEVEL))
    own = {"consumer.heartbeat.interval.ms": "700", "consumer.session.timeout.ms": "9000"}
    changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in own.items()]
    assert world.do(AlterGroupConfigs(world.now_ms, "g", changes)) == Done()
    cluster = [ConfigChange("group.consumer.session.timeout.ms", ConfigOperation.SET, "50000")]
    assert world.do(AlterConfigs(world.now_ms, "", cluster)) == Done()
    assert world.consumers.join("one", "t").heartbeat_interval_ms == 700
    assert [each[2] for each in queries.watched_members(world.state)] == [9_000]
    removed = [ConfigChange(name, ConfigOperation.DELETE) for name in own]
    assert world.do(AlterGroupConfigs(world.now_ms, "g", removed)) == Done()
    assert [each[2] for each in queries.watched_members(world.state)] == [50_000]


@pytest.mark.parametrize("operation", [ConfigOperation.SET, ConfigOperation.DELETE])
def test_until_all_replicas_know_them_no_group_has_configurations_of_consumers(
    world: World, operation: ConfigOperation
) -> None:
    world.do(RaiseLevel(world.now_ms, KAFKA_VALUES_LEVEL - 1))
    before = encode_state(world.state)
    change = ConfigChange("consumer.session.timeout.ms", operation, "9000")
    assert isinstance(world.do(AlterGroupConfigs(world.now_ms, "g", [change])), Rejected)
    assert not world.state.group_configs
    assert decode_state(before).group_configs_altered_sequence == world.state.group_configs_altered_sequence


def test_a_snapshot_has_the_group_as_it_is(world: World) -> None:
    world.topic("orders", partitions=2, number=2)
    one = world.consumers.client("one", "t", pattern="or.*", instance_id="i")
    world.consumers.client("two", "t", rebalance_timeout_ms=5_000)
    world.consumers.beat(one)
    world.consumers.leave("two")
    data = encode_state(world.state)
    world.state = decode_state(data)
    assert encode_state(world.state) == data
    world.consumers.settle(one)
    assert {*one.owned} == {T, topic_id(2)}
    world.topic("orbit", partitions=1, number=3)
    world.consumers.settle(one)
    assert {*one.owned} == {T, topic_id(2), topic_id(3)}
    assert isinstance(one, Client)


def test_a_member_names_a_limited_number_of_topics() -> None:
    world = World(Limits(consumers=ConsumerLimits(subscribed_topics_max=2)), level=SUBSCRIBED_TOPICS_LEVEL)
    rejected = world.consumers.join("m1", "a", "b", "c")
    assert (rejected.rejection, world.state.groups) == (Rejection.INVALID_REQUEST, {})
    assert isinstance(world.consumers.join("m1", "a", "b"), ConsumerMembership)
    assert world.consumers.heartbeat("m1", 1, topics=["a", "b", "c"]).rejection == Rejection.INVALID_REQUEST
    assert world.consumers.member("m1").topics == ["a", "b"]


@pytest.mark.parametrize("level", [SUBSCRIBED_TOPICS_LEVEL - 1, SUBSCRIBED_TOPICS_LEVEL])
def test_the_topics_that_members_name_count_as_their_size(level: int) -> None:
    world = World(level=level)
    world.consumers.join("m1", *(f"{number:03}" for number in range(1_000)))
    overhead_bytes = 64 * 1_000 if level == SUBSCRIBED_TOPICS_LEVEL else 0
    assert world.state.member_bytes // 1_000 == (1_024 + 3_000 + overhead_bytes) // 1_000
