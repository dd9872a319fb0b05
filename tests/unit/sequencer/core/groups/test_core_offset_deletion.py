"""Committed offsets go by OffsetDelete and by age, as in Kafka, and never because a clock leaps."""

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
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL, OFFSET_EXPIRY_LEVEL
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
STEP_MS = RETENTION_MS // DEFAULT_LIMITS.offsets.expiry_steps  # how finely ages are known


def subscription(*topics: str, version: int = 3) -> bytes:
    """A consumer's metadata: the topics, no user data, no partitions, and what later versions say."""
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


def live(world: World, duration_ms: int, step_ms: int = STEP_MS) -> None:
    """Time passes as it does, with Ticks on the way."""
    end_ms = world.now_ms + duration_ms
    while world.now_ms < end_ms:
        world.wait(min(step_ms, end_ms - world.now_ms))


def consumers(world: World, *topics: str) -> int:
    """A stable group of one member that reads the topics; its generation."""
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


def test_offsets_of_nobody_go_after_the_retention_each_by_its_commit(world: World) -> None:
    commit(world, ("t", 0))
    live(world, RETENTION_MS // 2)
    commit(world, ("t", 1))
    live(world, RETENTION_MS // 2 - STEP_MS)
    assert committed(world) == [("t", 0), ("t", 1)], "not a moment too early"
    live(world, 4 * STEP_MS)
    assert committed(world) == [("t", 1)]
    live(world, RETENTION_MS // 2)
    assert committed(world) == []


def test_a_commit_makes_an_offset_new(world: World) -> None:
    commit(world, ("t", 0))
    live(world, RETENTION_MS // 2)
    commit(world, ("t", 0))
    live(world, RETENTION_MS // 2 + 4 * STEP_MS)
    assert committed(world) == [("t", 0)]


def test_offsets_of_a_group_that_has_emptied_go_a_retention_later_however_old_they_are(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    live(world, 2 * RETENTION_MS)
    world.classic.leave(("m1", None))
    assert world.group().state == EMPTY
    live(world, RETENTION_MS - 2 * STEP_MS)
    assert committed(world) == [("t", 0)]
    live(world, 6 * STEP_MS)
    assert committed(world) == []


def goes_on_by_hand(world: World) -> None:
    """Somebody has tried the group with a subscription; from then on a job uses it that takes its partitions itself."""
    for _ in range(12):
        live(world, RETENTION_MS // 10)
        commit(world, ("u", 0))
    assert committed(world) == [("u", 0)]
    live(world, RETENTION_MS - 2 * STEP_MS)
    assert committed(world) == [("u", 0)], "not a moment too early"
    live(world, 6 * STEP_MS)
    assert committed(world) == []


def test_what_is_committed_by_hand_to_a_group_that_has_emptied_is_as_old_as_the_commit(world: World) -> None:
    commit_as_member(world, consumers(world, "t"), "t")
    world.classic.leave(("m1", None))
    goes_on_by_hand(world)


def test_what_is_committed_by_hand_to_a_consumer_group_that_has_emptied_is_as_old_as_the_commit() -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    world.topic("t")
    world.topic("u", number=2)
    world.configure(**{"offsets.retention.minutes": str(RETENTION_MINUTES)})
    commit_as_member(world, world.consumers.join("m1", "t").member_epoch, "t")
    world.consumers.leave("m1")
    goes_on_by_hand(world)


def test_a_group_that_was_joined_again_has_its_time_from_its_next_end(world: World) -> None:
    commit_as_member(world, consumers(world, "t"), "t")
    world.classic.leave(("m1", None))
    live(world, RETENTION_MS // 2)
    consumers(world, "t")
    world.classic.leave(("m1", None))
    live(world, RETENTION_MS // 2 + 4 * STEP_MS)
    assert committed(world) == [("t", 0)]
    live(world, RETENTION_MS // 2)
    assert committed(world) == []


def test_offsets_of_topics_that_members_read_never_go_and_others_do(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    commit_as_member(world, generation, "u")
    live(world, RETENTION_MS + 4 * STEP_MS)
    assert committed(world) == [("t", 0)]
    assert world.group().state == STABLE


@pytest.mark.parametrize(("kind", "said"), [("connect", b"whatever"), ("consumer", b"no subscription")])
def test_offsets_of_a_group_whose_members_say_nothing_stay_while_there_are_members(kind: str, said: bytes) -> None:
    world = World()
    world.topic()
    world.configure(**{"offsets.retention.minutes": "1"})
    world.classic.join("m1", kind=kind, protocols={"range": said})
    world.classic.finish_initial_delay()
    world.classic.sync("m1", 1, {}, kind=kind)
    commit_as_member(world, 1, "t")
    live(world, 3 * MINUTE_MS, 1_000)
    assert committed(world) == [("t", 0)]
    world.classic.leave(("m1", None))
    live(world, 2 * MINUTE_MS, 1_000)
    assert committed(world) == []


def test_what_members_say_at_too_great_length_is_not_read(world: World) -> None:
    world.use_limits(Limits(offsets=OffsetLimits(subscriptions_bytes_max=len(subscription("t")))))
    generation = consumers(world, "t")
    commit_as_member(world, generation, "u")
    world.use_limits(Limits(offsets=OffsetLimits(subscriptions_bytes_max=len(subscription("t")) - 1)))
    assert delete(world, ("u", 0)) == [Rejection.GROUP_SUBSCRIBED]
    live(world, RETENTION_MS + 4 * STEP_MS)
    assert committed(world) == [("u", 0)]
    world.use_limits(DEFAULT_LIMITS)
    live(world, 2 * STEP_MS)
    assert committed(world) == []


def test_in_the_middle_of_a_rebalance_nothing_goes(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "u")
    live(world, RETENTION_MS - 4 * STEP_MS)
    world.classic.join("m2", rebalance_ms=20 * STEP_MS, protocols={"range": subscription("t")})
    live(world, 15 * STEP_MS)
    assert committed(world) == [("u", 0)]


def test_no_clock_that_leaps_makes_offsets_old(world: World) -> None:
    commit(world, ("t", 0))
    leap_ms = 10 * RETENTION_MS
    world.now_ms += leap_ms
    live(world, RETENTION_MS // 2)
    assert committed(world) == [("t", 0)]
    assert world.state.lived_ms <= RETENTION_MS // 2 + DEFAULT_LIMITS.offsets.leap_max_ms + STEP_MS
    live(world, RETENTION_MS // 2 + 4 * STEP_MS)
    assert committed(world) == [], "what passed since the leap counts"


def test_what_was_committed_before_there_was_expiry_counts_as_committed_when_that_began() -> None:
    world = World()
    world.topic()
    commit(world, ("t", 0))
    live(world, 30 * 24 * 60 * MINUTE_MS, 24 * 60 * MINUTE_MS)
    assert (world.state.lived_ms, list(world.state.ages)) == (0, [])
    world.configure(**{"offsets.retention.minutes": str(RETENTION_MINUTES)})
    live(world, RETENTION_MS - STEP_MS)
    assert committed(world) == [("t", 0)]
    live(world, 4 * STEP_MS)
    assert committed(world) == []


def test_unless_told_otherwise_offsets_stay_for_seven_days() -> None:
    hour_ms = 60 * MINUTE_MS
    world = World(Limits(offsets=OffsetLimits(leap_max_ms=hour_ms)))
    world.topic()
    world.do(RaiseLevel(world.now_ms, OFFSET_EXPIRY_LEVEL))
    commit(world, ("t", 0))
    live(world, (7 * 24 - 1) * hour_ms, hour_ms)
    assert committed(world) == [("t", 0)]
    live(world, 6 * hour_ms, hour_ms)
    assert committed(world) == []


def test_the_retention_can_be_raised_and_lowered_at_any_time(world: World) -> None:
    commit(world, ("t", 0))
    live(world, RETENTION_MS // 2)
    world.configure_again(**{"offsets.retention.minutes": str(3 * RETENTION_MINUTES)})
    live(world, RETENTION_MS)
    assert committed(world) == [("t", 0)]
    world.configure_again(**{"offsets.retention.minutes": "10"})
    live(world, 3 * STEP_MS)
    assert committed(world) == []


def test_a_group_whose_last_offset_has_gone_is_forgotten(world: World) -> None:
    commit(world, ("t", 0))
    live(world, RETENTION_MS + 4 * STEP_MS)
    assert committed(world) == []
    live(world, 11 * MINUTE_MS)
    assert "g" not in world.state.groups


def test_a_late_commit_does_not_bring_an_expired_offset_back(world: World) -> None:
    commit(world, ("t", 0))
    seen = world.state.sequence
    live(world, RETENTION_MS + 4 * STEP_MS)
    assert world.commit_offset(4, seen=seen) == PerItem([Rejection.STALE])
    assert world.commit_offset(4, seen=world.state.sequence) == PerItem([Rejection.NONE])


def test_a_tick_looks_at_some_groups_only_and_the_next_ones_at_the_others(world: World) -> None:
    world.use_limits(Limits(offsets=OffsetLimits(groups_swept_per_tick=2)))
    for number in range(5):
        commit(world, ("t", 0), group_id=f"g{number}")
    live(world, RETENTION_MS)
    left = 5
    while left:
        live(world, 1_000, 1_000)
        now_left = sum(bool(committed(world, f"g{number}")) for number in range(5))
        assert left - 2 <= now_left <= left
        left = now_left


def test_members_that_have_to_be_asked_count_as_work(world: World) -> None:
    generation = consumers(world, "t")
    commit_as_member(world, generation, "t")
    commit(world, ("t", 0), group_id="h")
    live(world, RETENTION_MS)
    world.use_limits(Limits(offsets=OffsetLimits(offsets_swept_per_tick=5)))
    for _ in range(2 * STEP_MS // 1_000):
        if world.state.expiry_round:
            break
        live(world, 1_000, 1_000)
    assert [*world.state.expiry_round] == ["h"], "to look at g, and to ask its member, was all the work of a tick"
    assert committed(world, "h") == [("t", 0)]
    live(world, 1_000, 1_000)
    assert committed(world) == [("t", 0)]
    assert committed(world, "h") == []


def test_a_group_with_many_offsets_ends_the_ticks_work(world: World) -> None:
    world.use_limits(Limits(offsets=OffsetLimits(offsets_swept_per_tick=2)))
    commit(world, ("t", 0), ("t", 1), ("t", 2), group_id="g1")
    commit(world, ("t", 0), group_id="g2")
    live(world, RETENTION_MS)
    while committed(world, "g1"):
        live(world, 1_000, 1_000)
    assert committed(world, "g2")
    live(world, 1_000, 1_000)
    assert not committed(world, "g2")


def test_snapshots_hold_all_that_expiry_goes_by(world: World) -> None:
    commit(world, ("t", 0))
    commit_as_member(world, consumers(world, "t"), "u")
    for _ in range(30):
        live(world, RETENTION_MS // 20)
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
        live(world, 30_000, 1_000)
    assert committed(world) == [("t", 0)]


@pytest.fixture
def empty_group(world: World) -> Iterator[World]:
    commit(world, ("t", 0), ("t", 1), ("u", 0))
    yield world
    assert "g" in world.state.groups


def test_offsets_are_deleted_one_by_one(empty_group: World) -> None:
    assert delete(empty_group, ("t", 1), ("u", 0), ("t", 2)) == [Rejection.NONE] * 3
    assert committed(empty_group) == [("t", 0)]


def test_offsets_of_what_does_not_exist_are_not_deleted(empty_group: World) -> None:
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


def test_what_the_members_of_another_kind_of_group_use_only_they_know(world: World) -> None:
    world.classic.join("m1", kind="connect", protocols={"range": b""})
    outcome = world.do(DeleteOffsets(world.now_ms, "g", [DeletedOffset("t", 0)]))
    assert outcome.rejection == Rejection.GROUP_NOT_EMPTY


def test_before_the_first_generation_any_topic_may_be_read(world: World) -> None:
    commit(world, ("t", 0))
    world.classic.join("m1", protocols={"range": subscription("u")})
    assert delete(world, ("t", 0)) == [Rejection.GROUP_SUBSCRIBED]


@pytest.mark.parametrize(("group_id", "rejection"), [("", Rejection.INVALID_GROUP), ("x", Rejection.UNKNOWN_GROUP)])
def test_there_must_be_a_group_to_delete_offsets_of(world: World, group_id: str, rejection: Rejection) -> None:
    assert world.do(DeleteOffsets(world.now_ms, group_id, [])).rejection == rejection


def test_a_late_deletion_leaves_offsets_alone_that_were_committed_since(world: World) -> None:
    commit(world, ("t", 0))
    seen = world.state.sequence
    commit(world, ("t", 1))
    assert delete(world, ("t", 0), ("t", 1), seen=seen) == [Rejection.NONE, Rejection.STALE]
    assert committed(world) == [("t", 1)]
    assert delete(world, ("t", 1), seen=world.state.sequence) == [Rejection.NONE]


def test_offsets_of_a_topic_that_was_deleted_are_gone_already(empty_group: World) -> None:
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
    live(world, 2 * MINUTE_MS, 1_000)
    assert committed(world) == [("named", 0), ("matched", 0)]
    world.consumers.leave("m1")
    live(world, 50_000, 1_000)
    assert committed(world) == [("named", 0), ("matched", 0)]
    live(world, 15_000, 1_000)
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


def test_what_is_no_subscription_names_no_topics() -> None:
    whole = subscription("abc", "d")
    broken = [whole[:length] for length in range(2 + 4 + 2 + 3 + 2 + 1)]
    broken += [b"\xff\xff" + whole[2:], whole[:2] + b"\xff" * 4, whole.replace(b"d", b"\xff")]
    for data in broken:
        with pytest.raises(Malformed):
            read_topics(data)
