"""Committed offsets are deleted by OffsetDelete and by age, as in Kafka, and never because a clock leaps."""

from collections.abc import Iterator

import pytest

from penstock.contracts.commands import (
    CommitOffsets,
    DeletedOffset,
    DeleteOffsets,
    DeleteTopic,
    OffsetToCommit,
    PerItem,
    RaiseLevel,
    Tick,
)
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL, OFFSET_EXPIRY_LEVEL, SUBSCRIBED_TOPICS_LEVEL
from penstock.contracts.queries.groups import GroupOffsetsQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups.assignment.classic_subscription_codec import Malformed, read_topics
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import EMPTY, STABLE
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, OffsetLimits
from tests.unit.sequencer.core.core_world import World, topic_id, transaction_world

MINUTE_MS = 60_000
RETENTION_MINUTES = 100
RETENTION_MS = RETENTION_MINUTES * MINUTE_MS
STEP_MS = RETENTION_MS // DEFAULT_LIMITS.offsets.expiry_steps  # the accuracy of ages


def subscription(*topics: str, version: int = 3) -> bytes:
    """A consumer's metadata: the topics, no user data, no partitions, and the fields of later versions."""
    named = b"".join(len(topic.encode()).to_bytes(2, "big") + topic.encode() for topic in topics)
    head = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    return head + named + (-1).to_bytes(4, "big", signed=True) + bytes(8)


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(partitions=3)
    world.topic("u", number=2)
    world.configure(**{"offsets.retention.minutes": str(RETENTION_MINUTES)})
    return world


def commit(world: World, *places: tuple[str, int], group_id: str = "g", offset: int = 5) -> None:
    items = [OffsetToCommit(topic, partition, offset, 1, "") for topic, partition in places]
    outcome = world.do(CommitOffsets(world.now_ms, group_id, -1, "", None, items))
    assert outcome == PerItem([Rejection.NONE] * len(items))


def committed(world: World, group_id: str = "g") -> list[tuple[str, int]]:
    found = queries.group_offsets(world.state, GroupOffsetsQuery(0, group_id, None)).offsets
    return [(each.topic, each.partition) for each in found]


def pass_time(world: World, duration_ms: int, step_ms: int = STEP_MS) -> None:
    """Let time pass normally, with Ticks on the way."""
    end_ms = world.now_ms + duration_ms
    while world.now_ms < end_ms:
        world.wait(min(step_ms, end_ms - world.now_ms))


def consumers(world: World, *topics: str) -> int:
    """A stable group of one member that reads the topics; returns its generation."""
    world.classic.join("m1", protocols={"range": subscription(*topics)})
    world.classic.finish_initial_delay()
    world.classic.sync("m1", world.group().generation, {"m1": b"all"})
    assert world.group().state == STABLE
    return world.group().generation


def commit_as_member(world: World, generation: int, topic: str) -> None:
    assert world.commit_offset(topic=topic, generation=generation, member_id="m1") == PerItem([Rejection.NONE])


def delete(world: World, *places: tuple[str, int], seen: int = -1) -> list[Rejection]:
    rejections: list[Rejection] = world.do(
        DeleteOffsets(world.now_ms, "g", [DeletedOffset(*place) for place in places], seen)
    ).rejections
    return rejections


def test_offsets_of_a_group_without_members_expire_each_by_its_commit(world: World) -> None:
    commit(world, ("t", 0))
    pass_time(world, RETENTION_MS // 2)
    commit(world, ("t", 1))
    pass_time(world, RETENTION_MS // 2 - STEP_MS)
    assert committed(world) == [("t", 0), ("t", 1)], "not before the retention ends"
    pass_time(world, 4 * STEP_MS)
    assert committed(world) == [("t", 1)]
    pass_time(world, RETENTION_MS // 2)
    assert committed(world) == []


def test_a_commit_restarts_the_retention(world: World) -> None:
    commit(world, ("t", 0))
    pass_time(world, RETENTION_MS // 2)
    commit(world, ("t", 0))
    pass_time(world, RETENTION_MS // 2 + 4 * STEP_MS)
    assert committed(world) == [("t", 0)]


def test_old_offsets_of_an_emptied_group_stay_for_a_whole_retention(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    pass_time(world, 2 * RETENTION_MS)
    world.classic.leave(("m1", None))
    assert world.group().state == EMPTY
    pass_time(world, RETENTION_MS - 2 * STEP_MS)
    assert committed(world) == [("t", 0)]
    pass_time(world, 6 * STEP_MS)
    assert committed(world) == []


def commit_without_membership(world: World) -> None:
    """A job that assigns partitions by hand now uses a group that had a member before."""
    for _ in range(12):
        pass_time(world, RETENTION_MS // 10)
        commit(world, ("u", 0))
    assert committed(world) == [("u", 0)]
    pass_time(world, RETENTION_MS - 2 * STEP_MS)
    assert committed(world) == [("u", 0)], "not before the retention ends"
    pass_time(world, 6 * STEP_MS)
    assert committed(world) == []


def test_later_offsets_of_an_emptied_classic_group_expire_by_their_commits(world: World) -> None:
    commit_as_member(world, consumers(world, "t"), "t")
    world.classic.leave(("m1", None))
    commit_without_membership(world)


def test_later_offsets_of_an_emptied_consumer_group_expire_by_their_commits() -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    world.topic("t")
    world.topic("u", number=2)
    world.configure(**{"offsets.retention.minutes": str(RETENTION_MINUTES)})
    commit_as_member(world, world.consumers.join("m1", "t").member_epoch, "t")
    world.consumers.leave("m1")
    commit_without_membership(world)


def test_a_group_that_was_joined_again_counts_from_the_next_time_it_empties(world: World) -> None:
    commit_as_member(world, consumers(world, "t"), "t")
    world.classic.leave(("m1", None))
    pass_time(world, RETENTION_MS // 2)
    consumers(world, "t")
    world.classic.leave(("m1", None))
    pass_time(world, RETENTION_MS // 2 + 4 * STEP_MS)
    assert committed(world) == [("t", 0)]
    pass_time(world, RETENTION_MS // 2)
    assert committed(world) == []


def test_offsets_of_topics_that_members_read_never_expire_and_others_do(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    commit_as_member(world, generation, "u")
    pass_time(world, RETENTION_MS + 4 * STEP_MS)
    assert committed(world) == [("t", 0)]
    assert world.group().state == STABLE


@pytest.mark.parametrize(("kind", "metadata"), [("connect", b"whatever"), ("consumer", b"no subscription")])
def test_offsets_of_members_with_unreadable_metadata_stay_while_there_are_members(kind: str, metadata: bytes) -> None:
    world = World()
    world.topic()
    world.configure(**{"offsets.retention.minutes": "1"})
    world.classic.join("m1", kind=kind, protocols={"range": metadata})
    world.classic.finish_initial_delay()
    world.classic.sync("m1", 1, {}, kind=kind)
    commit_as_member(world, 1, "t")
    pass_time(world, 3 * MINUTE_MS, 1_000)
    assert committed(world) == [("t", 0)]
    world.classic.leave(("m1", None))
    pass_time(world, 2 * MINUTE_MS, 1_000)
    assert committed(world) == []


def test_metadata_above_the_size_limit_is_not_read(world: World) -> None:
    world.use_limits(Limits(offsets=OffsetLimits(subscriptions_bytes_max=len(subscription("t")))))
    generation = consumers(world, "t")
    commit_as_member(world, generation, "u")
    world.use_limits(Limits(offsets=OffsetLimits(subscriptions_bytes_max=len(subscription("t")) - 1)))
    assert delete(world, ("u", 0)) == [Rejection.GROUP_SUBSCRIBED]
    pass_time(world, RETENTION_MS + 4 * STEP_MS)
    assert committed(world) == [("u", 0)]
    world.use_limits(DEFAULT_LIMITS)
    pass_time(world, 2 * STEP_MS)
    assert committed(world) == []


@pytest.mark.parametrize(
    ("level", "rejection"),
    [(SUBSCRIBED_TOPICS_LEVEL - 1, Rejection.NONE), (SUBSCRIBED_TOPICS_LEVEL, Rejection.GROUP_SUBSCRIBED)],
)
def test_metadata_with_more_names_than_the_limit_is_not_read(level: int, rejection: Rejection) -> None:
    world = World(Limits(offsets=OffsetLimits(subscriptions_names_max=2)), level)
    world.topic()
    world.topic("u", number=2)
    generation = consumers(world, "t", "v")
    commit_as_member(world, generation, "u")
    assert delete(world, ("u", 0)) == [Rejection.NONE]
    world.classic.leave(("m1", None), ("m2", None))
    generation = consumers(world, "t", "v", "w")
    assert delete(world, ("u", 0)) == [rejection]


def test_no_offset_expires_during_a_rebalance(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "u")
    pass_time(world, RETENTION_MS - 4 * STEP_MS)
    world.classic.join("m2", rebalance_ms=20 * STEP_MS, protocols={"range": subscription("t")})
    pass_time(world, 15 * STEP_MS)
    assert committed(world) == [("u", 0)]


def test_a_leap_of_a_clock_expires_no_offset(world: World) -> None:
    commit(world, ("t", 0))
    leap_ms = 10 * RETENTION_MS
    world.now_ms += leap_ms
    pass_time(world, RETENTION_MS // 2)
    assert committed(world) == [("t", 0)]
    assert world.state.lived_ms <= RETENTION_MS // 2 + DEFAULT_LIMITS.offsets.leap_max_ms + STEP_MS
    pass_time(world, RETENTION_MS // 2 + 4 * STEP_MS)
    assert committed(world) == [], "the time since the leap counts"


def test_offsets_from_before_the_expiry_level_count_as_committed_at_that_level() -> None:
    world = World()
    world.topic()
    commit(world, ("t", 0))
    pass_time(world, 30 * 24 * 60 * MINUTE_MS, 24 * 60 * MINUTE_MS)
    assert (world.state.lived_ms, list(world.state.ages)) == (0, [])
    world.configure(**{"offsets.retention.minutes": str(RETENTION_MINUTES)})
    pass_time(world, RETENTION_MS - STEP_MS)
    assert committed(world) == [("t", 0)]
    pass_time(world, 4 * STEP_MS)
    assert committed(world) == []


def test_the_default_retention_of_offsets_is_seven_days() -> None:
    hour_ms = 60 * MINUTE_MS
    world = World(Limits(offsets=OffsetLimits(leap_max_ms=hour_ms)))
    world.topic()
    world.do(RaiseLevel(world.now_ms, OFFSET_EXPIRY_LEVEL))
    commit(world, ("t", 0))
    pass_time(world, (7 * 24 - 1) * hour_ms, hour_ms)
    assert committed(world) == [("t", 0)]
    pass_time(world, 6 * hour_ms, hour_ms)
    assert committed(world) == []


def test_the_retention_can_be_raised_and_lowered_at_any_time(world: World) -> None:
    commit(world, ("t", 0))
    pass_time(world, RETENTION_MS // 2)
    world.configure_again(**{"offsets.retention.minutes": str(3 * RETENTION_MINUTES)})
    pass_time(world, RETENTION_MS)
    assert committed(world) == [("t", 0)]
    world.configure_again(**{"offsets.retention.minutes": "10"})
    pass_time(world, 3 * STEP_MS)
    assert committed(world) == []


def test_a_group_whose_last_offset_has_expired_is_removed(world: World) -> None:
    commit(world, ("t", 0))
    pass_time(world, RETENTION_MS + 4 * STEP_MS)
    assert committed(world) == []
    pass_time(world, 11 * MINUTE_MS)
    assert "g" not in world.state.groups


def test_a_late_commit_does_not_bring_an_expired_offset_back(world: World) -> None:
    commit(world, ("t", 0))
    seen = world.state.sequence
    pass_time(world, RETENTION_MS + 4 * STEP_MS)
    assert world.commit_offset(4, seen=seen) == PerItem([Rejection.STALE])
    assert world.commit_offset(4, seen=world.state.sequence) == PerItem([Rejection.NONE])


def test_each_tick_checks_only_some_groups(world: World) -> None:
    world.use_limits(Limits(offsets=OffsetLimits(groups_swept_per_tick=2)))
    for number in range(5):
        commit(world, ("t", 0), group_id=f"g{number}")
    pass_time(world, RETENTION_MS)
    left = 5
    while left:
        pass_time(world, 1_000, 1_000)
        now_left = sum(bool(committed(world, f"g{number}")) for number in range(5))
        assert left - 2 <= now_left <= left
        left = now_left


def test_members_whose_metadata_must_be_read_count_as_work(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    commit(world, ("t", 0), group_id="h")
    pass_time(world, RETENTION_MS)
    world.use_limits(Limits(offsets=OffsetLimits(offsets_swept_per_tick=5)))
    for _ in range(2 * STEP_MS // 1_000):
        if world.state.expiry_round:
            break
        pass_time(world, 1_000, 1_000)
    assert [*world.state.expiry_round] == ["h"], "group g and its member took all the work of a Tick"
    assert committed(world, "h") == [("t", 0)]
    pass_time(world, 1_000, 1_000)
    assert committed(world) == [("t", 0)]
    assert committed(world, "h") == []


def test_a_group_with_many_offsets_ends_the_ticks_work(world: World) -> None:
    world.use_limits(Limits(offsets=OffsetLimits(offsets_swept_per_tick=2)))
    commit(world, ("t", 0), ("t", 1), ("t", 2), group_id="g1")
    commit(world, ("t", 0), group_id="g2")
    pass_time(world, RETENTION_MS)
    while committed(world, "g1"):
        pass_time(world, 1_000, 1_000)
    assert committed(world, "g2")
    pass_time(world, 1_000, 1_000)
    assert not committed(world, "g2")


def test_snapshots_hold_all_state_of_the_expiry(world: World) -> None:
    commit(world, ("t", 0))
    commit_as_member(world, consumers(world, "t"), "u")
    for _ in range(30):
        pass_time(world, RETENTION_MS // 20)
        again = World()
        again.state, again.now_ms = decode_state(encode_state(world.state)), world.now_ms
        for each in (world, again):
            each.do(Tick(each.now_ms + 1))
        world.now_ms += 1
        assert encode_state(again.state) == encode_state(world.state)
    assert committed(world) == [("t", 0)]


def test_offsets_that_a_transaction_may_replace_stay() -> None:
    world = transaction_world()
    writer = world.transactions.init(timeout_ms=15 * MINUTE_MS)
    world.configure_again(**{"offsets.retention.minutes": "1"})
    commit(world, ("t", 0), ("t", 1))
    for _ in range(5):
        world.transactions.commit_txn_offset(writer, group_id="g", adds=True)
        pass_time(world, 30_000, 1_000)
    assert committed(world) == [("t", 0)]


@pytest.fixture
def empty_group(world: World) -> Iterator[World]:
    commit(world, ("t", 0), ("t", 1), ("u", 0))
    yield world
    assert "g" in world.state.groups


def test_offsets_are_deleted_one_by_one(empty_group: World) -> None:
    assert delete(empty_group, ("t", 1), ("u", 0), ("t", 2)) == [Rejection.NONE] * 3
    assert committed(empty_group) == [("t", 0)]


def test_offsets_of_unknown_partitions_are_not_deleted(empty_group: World) -> None:
    assert delete(empty_group, ("x", 0), ("t", 3), ("t", -1), ("t", 0)) == [Rejection.UNKNOWN_TOPIC] * 3 + [
        Rejection.NONE
    ]


def test_offsets_of_topics_that_members_read_are_not_deleted(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    commit_as_member(world, generation, "u")
    assert delete(world, ("t", 0), ("u", 0)) == [Rejection.GROUP_SUBSCRIBED, Rejection.NONE]
    assert committed(world) == [("t", 0)]
    world.classic.leave(("m1", None))
    assert delete(world, ("t", 0)) == [Rejection.NONE]


def test_offsets_of_a_group_with_another_protocol_type_are_not_deleted(world: World) -> None:
    world.classic.join("m1", kind="connect", protocols={"range": b""})
    outcome = world.do(DeleteOffsets(world.now_ms, "g", [DeletedOffset("t", 0)]))
    assert outcome.rejection == Rejection.GROUP_NOT_EMPTY


def test_before_the_first_generation_any_topic_may_be_read(world: World) -> None:
    commit(world, ("t", 0))
    world.classic.join("m1", protocols={"range": subscription("u")})
    assert delete(world, ("t", 0)) == [Rejection.GROUP_SUBSCRIBED]


@pytest.mark.parametrize(("group_id", "rejection"), [("", Rejection.INVALID_GROUP), ("x", Rejection.UNKNOWN_GROUP)])
def test_the_group_of_deleted_offsets_must_exist(world: World, group_id: str, rejection: Rejection) -> None:
    assert world.do(DeleteOffsets(world.now_ms, group_id, [])).rejection == rejection


def test_a_late_deletion_leaves_offsets_alone_that_were_committed_since(world: World) -> None:
    commit(world, ("t", 0))
    seen = world.state.sequence
    commit(world, ("t", 1))
    assert delete(world, ("t", 0), ("t", 1), seen=seen) == [Rejection.NONE, Rejection.STALE]
    assert committed(world) == [("t", 1)]
    assert delete(world, ("t", 1), seen=world.state.sequence) == [Rejection.NONE]


def test_offsets_of_a_deleted_topic_are_deleted_already(empty_group: World) -> None:
    empty_group.do(DeleteTopic(empty_group.now_ms, "", topic_id(2)))
    assert delete(empty_group, ("u", 0)) == [Rejection.UNKNOWN_TOPIC]


def test_offsets_of_topics_that_a_consumer_group_subscribes_stay() -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    for number, name in enumerate(("named", "matched", "other"), 1):
        world.topic(name, number=number)
    world.configure(**{"offsets.retention.minutes": "1"})
    epoch = world.consumers.join("m1", "named", pattern="mat.*").member_epoch
    for topic in ("named", "matched", "other"):
        assert world.commit_offset(topic=topic, generation=epoch, member_id="m1") == PerItem([Rejection.NONE])
    assert delete(world, ("named", 0), ("matched", 0)) == [Rejection.GROUP_SUBSCRIBED] * 2
    pass_time(world, 2 * MINUTE_MS, 1_000)
    assert committed(world) == [("named", 0), ("matched", 0)]
    world.consumers.leave("m1")
    pass_time(world, 50_000, 1_000)
    assert committed(world) == [("named", 0), ("matched", 0)]
    pass_time(world, 15_000, 1_000)
    assert committed(world) == []


def test_offsets_that_a_consumer_group_does_not_subscribe_are_deleted() -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    world.topic("a")
    epoch = world.consumers.join("m1", "b").member_epoch
    world.commit_offset(topic="a", generation=epoch, member_id="m1")
    assert delete(world, ("a", 0)) == [Rejection.NONE]


@pytest.mark.parametrize("version", range(4))
def test_the_topics_of_a_subscription_of_any_version_are_read(version: int) -> None:
    assert read_topics(subscription("a", "ä", version=version)) == ["a", "ä"]
    assert read_topics(subscription(version=version)) == []


def test_other_metadata_than_a_subscription_has_no_topics() -> None:
    whole = subscription("abc", "d")
    broken = [whole[:length] for length in range(2 + 4 + 2 + 3 + 2 + 1)]
    broken += [b"\xff\xff" + whole[2:], whole[:2] + b"\xff" * 4, whole.replace(b"d", b"\xff")]
    for data in broken:
        with pytest.raises(Malformed):
            read_topics(data)
