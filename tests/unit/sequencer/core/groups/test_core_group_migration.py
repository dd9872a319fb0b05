"""Conversion of running groups from the classic protocol and back, and classic members of consumer groups."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    CommitOffsets,
    ConsumerMembership,
    CreatePartitions,
    GroupProtocol,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    MemberIdRequired,
    OffsetToCommit,
    PerItem,
    Rejected,
    Synced,
    SyncGroup,
    Waiting,
)
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL, HELD_GOES_OVER_LEVEL, SUBSCRIBED_TOPICS_LEVEL
from penstock.contracts.queries.groups import GroupWaitQuery, HeartbeatQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups.assignment import classic_subscription_codec
from penstock_sequencer.core.groups.assignment.classic_subscription_codec import (
    Malformed,
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock_sequencer.core.groups.consumer_group import enter_member
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import ConsumerLimits, Limits
from tests.testkit.work import counted_work
from tests.unit.sequencer.core.core_consumers import Client, numbers
from tests.unit.sequencer.core.core_world import World, topic_id


def subscription(topics: list[str], owned: dict[str, list[int]] | None = None, version: int = 3) -> bytes:
    """A subscription as Kafka's clients write it."""
    fields = [struct.pack(">hi", version, len(topics)), *map(text, topics), struct.pack(">i", -1)]
    if version >= 1:
        fields.append(struct.pack(">i", len(owned or {})))
        for topic, held in (owned or {}).items():
            fields += [text(topic), struct.pack(f">i{len(held)}i", len(held), *held)]
    if version >= 2:
        fields.append(struct.pack(">i", 7))
    if version >= 3:
        fields.append(text("rack"))
    return b"".join(fields)


def text(name: str) -> bytes:
    return struct.pack(f">h{len(name)}s", len(name), name.encode())


class Classic(msgspec.Struct, eq=False):
    """A classic consumer with the state that it knows."""

    name: str
    generation: int = -1
    owned: list[int] = []


def migration_world(level: int = CONSUMER_GROUPS_LEVEL) -> World:
    """A world with a topic of six partitions; the classic members have a cooperative assignor."""
    world = World(level=level)
    world.topic(partitions=6)
    return world


def join_classic(world: World, member: Classic, member_id: str | None = None, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "member_id": member.name if member_id is None else member_id,
        "new_member_id": member.name,
        "group_instance_id": None,
        "require_known_member": False,
        "protocol_type": "consumer",
        "protocols": [GroupProtocol("cooperative-sticky", subscription(["t"], {"t": member.owned}))],
    }
    given |= changes
    return world.do(
        JoinGroup(
            world.now_ms,
            "g",
            given["member_id"],
            given["new_member_id"],
            given["group_instance_id"],
            given["require_known_member"],
            "client",
            "/host",
            10_000,
            5_000,
            given["protocol_type"],
            given["protocols"],
            given.get("seen_sequence", -1),
        )
    )


def sync_classic(
    world: World, member: Classic, assignments: list[MemberAssignment] | None = None, instance_id: str | None = None
) -> Any:
    command = SyncGroup(world.now_ms, "g", member.generation, member.name, instance_id, None, None, assignments or [])
    return world.do(command)


def beat_classic(world: World, member: Classic) -> Rejection:
    return queries.heartbeat(world.state, HeartbeatQuery(0, "g", member.generation, member.name, None)).rejection


def take_part(world: World, member: Classic) -> None:
    """A classic consumer's step: a heartbeat, and a join and a sync if the heartbeat demands it."""
    if beat_classic(world, member) == Rejection.NONE:
        return
    joined = join_classic(world, member)
    assert isinstance(joined, Joined), joined
    member.generation = joined.generation
    synced = sync_classic(world, member)
    assert isinstance(synced, Synced), synced
    member.owned = read_assignment(synced.assignment).get("t", [])


def classic_group(world: World, *members: Classic) -> None:
    """A stable classic group whose leader has assigned the topic's partitions."""
    for member in members:
        join_classic(world, member, "")
    settle_classic(world, list(members), {})


def settle_classic(world: World, members: list[Classic], instances: dict[str, str]) -> None:
    """The leader of the joined members assigns the topic's partitions."""
    while world.group().state != "CompletingRebalance":
        world.wait(500)
    share = 6 // len(members)
    assignments = []
    for place, member in enumerate(members):
        member.generation = world.group().generation
        member.owned = list(range(place * share, (place + 1) * share))
        assignments.append(MemberAssignment(member.name, write_assignment(3, [("t", member.owned)])))
    for member in members:
        sync_classic(world, member, assignments, instances.get(member.name))
    assert world.group().state == "Stable"


@pytest.fixture
def world() -> World:
    return migration_world()


def rest(world: World, classic: list[Classic], new: list[Client]) -> None:
    for _ in range(10):
        world.wait(1_000)
        for member in classic:
            take_part(world, member)
        for client in new:
            assert isinstance(world.consumers.beat(client), ConsumerMembership)


def test_a_classic_group_becomes_a_consumer_group_while_its_members_continue(world: World) -> None:
    one, two = Classic("one"), Classic("two")
    classic_group(world, one, two)
    generation = world.group().generation
    new = world.consumers.client("new", "t")
    assert (new.owned, new.epoch) == ({}, generation + 2), "it does not get other members' partitions yet"
    assert beat_classic(world, one) == Rejection.REBALANCE_IN_PROGRESS
    joined = join_classic(world, one)
    assert joined == Joined(generation, "consumer", "cooperative-sticky", "", "one", [])
    one.generation = joined.generation
    synced = sync_classic(world, one)
    assert read_assignment(synced.assignment) == {"t": [0, 1]}
    assert world.consumers.member("one").revoking == {topic_id(1): [2]}
    one.owned = [0, 1]
    rest(world, [one, two], [new])
    assert (one.owned, two.owned, numbers(new)) == ([0, 1], [3, 4], [2, 5])
    assert world.group().state == "Stable"


def test_classic_members_may_join_and_leave_a_consumer_group(world: World) -> None:
    new, old = world.consumers.client("new", "t"), Classic("old")
    required = join_classic(world, old, "", require_known_member=True)
    assert required == MemberIdRequired("old")
    old.generation = join_classic(world, old).generation
    old.owned = read_assignment(sync_classic(world, old).assignment).get("t", [])
    assert old.owned == []
    rest(world, [old], [new])
    assert sorted(old.owned + numbers(new)) == [0, 1, 2, 3, 4, 5]
    assert len(old.owned) == 3
    left = world.do(LeaveGroup(world.now_ms, "g", [LeavingMember("old", None), LeavingMember("new", None)]))
    assert left == PerItem([Rejection.NONE, Rejection.UNKNOWN_MEMBER]), "a new member leaves by its heartbeat"
    rest(world, [], [new])
    assert len(numbers(new)) == 6


def test_without_members_of_the_new_protocol_the_group_is_classic_again(world: World) -> None:
    one, two = Classic("one"), Classic("two")
    classic_group(world, one, two)
    new = world.consumers.client("new", "t")
    rest(world, [one, two], [new])
    epoch = world.group().generation
    world.consumers.leave("new")
    group = world.group()
    assert (group.consumer, group.state, group.generation) == (None, "PreparingRebalance", epoch)
    assert [*group.members] == ["one", "two"]
    assert beat_classic(world, one) == Rejection.REBALANCE_IN_PROGRESS
    assert isinstance(join_classic(world, one), Waiting)
    joined = join_classic(world, two)
    assert isinstance(joined, Joined | Waiting)
    assert world.group().state == "CompletingRebalance"
    assert world.group().generation == epoch + 1


def test_the_expiry_of_the_last_new_member_makes_the_group_classic_too(world: World) -> None:
    one = Classic("one")
    classic_group(world, one)
    new = world.consumers.client("new", "t")
    rest(world, [one], [new])
    world.consumers.expire("new")
    assert world.group().consumer is None


def test_a_member_that_waited_in_a_classic_rebalance_must_join_again(world: World) -> None:
    one = Classic("one")
    waiting = join_classic(world, one, "")
    assert isinstance(waiting, Waiting)
    world.consumers.client("new", "t")
    query = GroupWaitQuery(0, "join", "g", "one", waiting.generation, 0)
    assert queries.group_wait(world.state, query).outcome == Rejected(Rejection.REBALANCE_IN_PROGRESS)
    take_part(world, one)
    assert one.generation >= 0


def test_a_classic_member_that_does_not_join_again_in_time_is_removed(world: World) -> None:
    one = Classic("one")
    classic_group(world, one)
    new = world.consumers.client("new", "t")
    world.wait(4_999)
    world.consumers.beat(new)
    assert world.consumers.member("one").assigned
    world.wait(1)
    rest(world, [], [new])
    assert len(numbers(new)) == 6
    assert beat_classic(world, one) == Rejection.UNKNOWN_MEMBER


def test_a_classic_member_that_joins_and_does_not_sync_is_removed(world: World) -> None:
    new, old = world.consumers.client("new", "t"), Classic("old")
    join_classic(world, old)
    world.wait(5_000)
    rest(world, [], [new])
    assert beat_classic(world, old) == Rejection.UNKNOWN_MEMBER


def test_a_restarted_static_member_may_use_the_other_protocol(world: World) -> None:
    one, two = Classic("one"), Classic("two")
    classic_group(world, one, two)
    world.consumers.client("new", "t", instance_id="i")
    old = Classic("old")
    joined = join_classic(world, old, "", group_instance_id="j")
    assert isinstance(joined, Joined)
    again = world.consumers.join("again", "t", instance_id="j")
    assert isinstance(again, ConsumerMembership)
    assert {*world.group().consumer.members} == {"one", "two", "new", "again"}  # type: ignore[union-attr]
    world.consumers.heartbeat("new", -2, instance_id="i")
    world.consumers.leave("again", instance_id="j")
    assert isinstance(join_classic(world, Classic("back"), "", group_instance_id="i"), Joined)
    assert world.group().consumer is None, "the last member of the new protocol was replaced"


def test_static_classic_members_change_the_protocol_one_by_one_and_keep_their_partitions(world: World) -> None:
    names = ("a", "b")
    for name in names:
        join_classic(world, Classic(name), "", group_instance_id=name)
    settle_classic(world, [Classic(name) for name in names], {name: name for name in names})
    before = world.state.sequence
    first = world.consumers.join("new-a", "t", instance_id="a", seen_sequence=before)
    assert isinstance(first, ConsumerMembership), "its sender has seen the member that it replaces"
    assert first.assignment is not None
    assert [each.partitions for each in first.assignment] == [[0, 1, 2]]
    second = world.consumers.join("new-b", "t", instance_id="b", seen_sequence=world.state.sequence)
    assert [each.partitions for each in second.assignment] == [[3, 4, 5]]
    assert {*world.group().consumer.members} == {"new-a", "new-b"}  # type: ignore[union-attr]


@pytest.mark.parametrize("had", ["one", None])
def test_a_classic_member_cannot_change_the_protocol_with_another_instance_id(world: World, had: str | None) -> None:
    join_classic(world, Classic("a"), "", group_instance_id=had)
    answer = world.consumers.join("a", "t", instance_id="two")
    assert answer == Rejected(Rejection.INVALID_REQUEST, "the member has another instance id, or none")
    assert world.group().consumer is None
    world.consumers.client("k", "t")
    assert world.consumers.join("a", "t", instance_id="two") == answer, "the same in the converted group"
    world.consumers.leave("k")
    world.do(CreatePartitions(world.now_ms, "t", 9))


def test_a_static_classic_member_may_change_the_protocol_without_its_instance_id(world: World) -> None:
    join_classic(world, Classic("a"), "", group_instance_id="one")
    assert isinstance(world.consumers.join("a", "t"), ConsumerMembership)
    assert world.group().consumer.static_members == {"one": "a"}  # type: ignore[union-attr]


def test_a_member_that_was_away_may_return_with_the_other_protocol_under_its_id(world: World) -> None:
    world.consumers.client("new", "t")
    world.consumers.client("a", "t", instance_id="one")
    world.consumers.heartbeat("a", -2, instance_id="one")
    joined = join_classic(world, Classic("a"), group_instance_id="one")
    assert (joined.generation, world.consumers.member("a").previous_epoch) == (world.group().generation, 0)


def test_an_id_has_one_member_after_any_join(world: World) -> None:
    world.consumers.client("a", "t", instance_id="one")
    other = msgspec.structs.replace(
        world.consumers.member("a"), instance_id="two", assigned={}, target={}, size_bytes=0
    )
    enter_member(world.state, world.group(), other)
    assert world.group().consumer.static_members == {"two": "a"}  # type: ignore[union-attr]
    world.consumers.leave("a", instance_id="two")
    assert (world.state.subscriptions.groups_by_topic, world.state.group_bytes) == ({}, 0)


def test_a_late_join_by_instance_id_makes_no_consumer_group(world: World) -> None:
    before = world.state.sequence
    join_classic(world, Classic("a"), "", group_instance_id="a")
    late = world.consumers.join("new-a", "t", instance_id="a", seen_sequence=before)
    assert isinstance(late, Rejected)
    assert late.rejection == Rejection.STALE
    assert world.group().consumer is None


def test_a_classic_members_requests_must_fit_its_generation_and_protocol(world: World) -> None:
    world.consumers.client("new", "t")
    old = Classic("old")
    old.generation = join_classic(world, old).generation
    assert sync_classic(world, Classic("old", old.generation + 1)) == Rejected(Rejection.ILLEGAL_GENERATION)
    assert sync_classic(world, Classic("other", old.generation)) == Rejected(Rejection.UNKNOWN_MEMBER)
    assert sync_classic(world, Classic("new", old.generation)) == Rejected(Rejection.UNKNOWN_MEMBER)
    for kind, name in (("connect", None), (None, "range")):
        command = SyncGroup(world.now_ms, "g", old.generation, "old", None, kind, name, [])
        assert world.do(command) == Rejected(Rejection.INCONSISTENT_PROTOCOL)
    assert beat_classic(world, Classic("old", old.generation + 1)) == Rejection.ILLEGAL_GENERATION
    world.topic("other", number=2)
    world.consumers.heartbeat("new", 1, topics=["t", "other"])
    assert sync_classic(world, old) == Rejected(Rejection.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocols": [GroupProtocol("range", b"x")]},
    ],
)
def test_only_kafkas_consumer_protocol_can_join_a_consumer_group(world: World, changes: dict[str, Any]) -> None:
    world.consumers.client("new", "t")
    assert join_classic(world, Classic("old"), **changes) == Rejected(Rejection.INCONSISTENT_PROTOCOL)


def test_classic_members_must_share_a_protocol(world: World) -> None:
    world.consumers.client("new", "t")
    join_classic(world, Classic("one"))
    other = [GroupProtocol("range", subscription(["t"]))]
    assert join_classic(world, Classic("two"), protocols=other) == Rejected(Rejection.INCONSISTENT_PROTOCOL)


def test_a_classic_group_with_unreadable_metadata_stays_classic(world: World) -> None:
    join_classic(world, Classic("one"), "", protocols=[GroupProtocol("range", b"\0")])
    assert world.consumers.join("new", "t") == Rejected(Rejection.UNKNOWN_GROUP, "Group g is not a consumer group.")
    assert world.group().consumer is None


def test_a_late_join_of_a_classic_member_gives_no_partition_back(world: World) -> None:
    one = Classic("one")
    classic_group(world, one)
    late_seen = world.state.sequence
    new = world.consumers.client("new", "t")
    take_part(world, one)
    late = join_classic(world, Classic("one"), seen_sequence=late_seen)
    assert late == Rejected(Rejection.STALE)
    assert world.consumers.beat(new).assignment is None


def test_members_converted_twice_before_they_rebalance_keep_their_partitions() -> None:
    world = migration_world(HELD_GOES_OVER_LEVEL)
    one, two = Classic("one"), Classic("two")
    classic_group(world, one, two)
    world.consumers.client("new", "t")
    assert world.consumers.member("one").target != world.consumers.member("one").assigned
    world.consumers.leave("new")
    assert world.group().consumer is None
    world.consumers.client("new", "t")
    assert [world.consumers.member(each.name).assigned[topic_id(1)] for each in (one, two)] == [one.owned, two.owned]


def test_a_classic_member_whose_first_join_is_journaled_twice_is_one_member(world: World) -> None:
    world.consumers.client("new", "t")
    seen = world.state.sequence
    answers = [join_classic(world, Classic("one"), "", seen_sequence=seen) for _ in range(2)]
    assert answers[0] == answers[1]
    assert isinstance(answers[1], Joined)
    assert list(world.group().consumer.members) == ["new", "one"]  # type: ignore[union-attr]


def test_a_late_first_join_does_not_bring_back_a_departed_member(world: World) -> None:
    world.consumers.client("new", "t")
    seen = world.state.sequence
    join_classic(world, Classic("one"), "", seen_sequence=seen)
    world.do(LeaveGroup(world.now_ms, "g", [LeavingMember("one", None)]))
    assert join_classic(world, Classic("one"), "", seen_sequence=seen) == Rejected(Rejection.STALE)


def test_classic_members_commit_at_their_generation(world: World) -> None:
    world.consumers.client("new", "t")
    old = Classic("old")
    old.generation = join_classic(world, old).generation

    def committed(generation: int) -> Any:
        offsets = [OffsetToCommit("t", 0, 5, -1, "")]
        return world.do(CommitOffsets(world.now_ms, "g", generation, "old", None, offsets))

    assert committed(old.generation) == PerItem([Rejection.NONE])
    assert committed(old.generation - 1) == Rejected(Rejection.ILLEGAL_GENERATION)


def test_classic_members_have_the_session_timeout_of_their_join(world: World) -> None:
    world.consumers.client("new", "t")
    join_classic(world, Classic("old"))
    assert {each[1]: each[2] for each in queries.watched_members(world.state)} == {"new": 45_000, "old": 10_000}


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_has_two_readers_while_members_of_both_kinds_join_and_leave(seed: int) -> None:
    random, world = Random(seed), migration_world(HELD_GOES_OVER_LEVEL)
    classic: dict[str, Classic] = {}
    new: dict[str, Client] = {}
    classic_group(world, *(classic.setdefault(name, Classic(name)) for name in ("c0", "c1")))
    for step in range(80):
        act(random, world, classic, new, step)
        group = world.group()
        if group.consumer is not None:
            held = [number for client in new.values() for number in numbers(client)]
            held += [
                number
                for member in classic.values()
                if member.name in group.consumer.members
                for number in member.owned
            ]
            assert len(held) == len({*held})
        world.state = decode_state(encode_state(world.state)) if step % 20 == 0 else world.state
    new.setdefault("last", world.consumers.client("last", "t"))
    classic = {name: each for name, each in classic.items() if name in world.group().consumer.members}  # type: ignore[union-attr]
    rest(world, list(classic.values()), list(new.values()))
    held = [*(number for member in classic.values() for number in member.owned)]
    held += [number for client in new.values() for number in numbers(client)]
    assert sorted(held) == [0, 1, 2, 3, 4, 5]


def act(random: Random, world: World, classic: dict[str, Classic], new: dict[str, Client], step: int) -> None:
    """A random step of one of the members; classic ones act only while the group is a consumer group."""
    consumer = world.group().consumer
    is_consumer = consumer is not None and bool(consumer.members)
    choice = random.randrange(6)
    if choice == 0 and len(new) < 3:
        new[f"n{step}"] = world.consumers.client(f"n{step}", "t")
    elif choice == 1 and new:
        world.consumers.leave(new.popitem()[0])
    elif choice == 2 and is_consumer and len(classic) < 3:
        member = classic[f"c{step}"] = Classic(f"c{step}")
        member.generation = join_classic(world, member).generation
        take_part(world, member)
    elif choice == 3 and is_consumer and classic:
        world.do(LeaveGroup(world.now_ms, "g", [LeavingMember(classic.popitem()[0], None)]))
    elif is_consumer:
        for member in classic.values():
            if member.name in world.group().consumer.members and random.random() < 0.7:  # type: ignore[union-attr]
                take_part(world, member)
        for client in new.values():
            world.consumers.beat(client)
    else:
        for member in [*classic.values()]:  # a classic group rebalances in another way: no member reads then
            member.owned = []


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_in_every_version(version: int) -> None:
    read = read_subscription(subscription(["a", "b"], {"a": [1, 2]}, version))
    assert (read.version, read.topics, read.owned) == (version, ["a", "b"], {"a": [1, 2]} if version else {})
    assert read.rack_id == ("rack" if version == 3 else None)


def test_a_subscription_of_a_later_version_is_read_as_the_newest_known_one() -> None:
    data = subscription(["a"], {}, 3)
    assert read_subscription(b"\0\x09" + data[2:] + b"more").topics == ["a"]
    assert classic_subscription_codec.spoken_version(b"\0\x09") == 3


def test_truncated_metadata_is_malformed() -> None:
    data = subscription(["a"], {"a": [1]}, 3)
    for end in range(len(data)):
        with pytest.raises(Malformed):
            read_subscription(data[:end])


def test_assignments_are_written_as_they_are_read() -> None:
    data = write_assignment(1, [("a", [1, 2]), ("b", [])])
    assert read_assignment(data) == {"a": [1, 2], "b": []}
    assert read_assignment(b"") == {}
    assert data[-4:] == b"\xff" * 4


def crowded_group(world: World, size: int) -> list[str]:
    """A consumer group of one member with so many classic members, and the ids of these."""
    world.on_entry.clear()  # the invariants are not the work of the commands
    names = [f"c{number:04}" for number in range(size)]
    for name in names:
        join_classic(world, Classic(name), "")
    assert isinstance(world.consumers.join("new", "t"), ConsumerMembership)
    return names


def work_of_leaving(members: int) -> int:
    """The work when all classic members of a consumer group leave with one request."""
    world = migration_world()
    names = crowded_group(world, members)
    epoch = world.group().generation
    with counted_work() as work:
        left = world.do(LeaveGroup(world.now_ms, "g", [LeavingMember(name, None) for name in (*names, names[0])]))
    assert left == PerItem([Rejection.NONE] * len(names) + [Rejection.UNKNOWN_MEMBER])
    assert world.group().generation == epoch + len(names)
    return work.instructions


def work_of_removing(members: int) -> int:
    """The work when classic members of a consumer group do not join again."""
    world = migration_world()
    crowded_group(world, members)
    with counted_work() as work:
        world.wait(10_000)
    consumer = world.group().consumer
    assert consumer is not None
    assert list(consumer.members) == ["new"]
    return work.instructions


@pytest.mark.parametrize("work_of", [work_of_leaving, work_of_removing])
def test_the_work_for_classic_members_that_go_grows_with_their_number_only(work_of: Callable[[int], int]) -> None:
    assert work_of(400) < 6 * work_of(100)


def limited_world(level: int) -> World:
    """A world in which a member names two topics, and a classic group three."""
    world = migration_world(level)
    world.use_limits(Limits(consumers=ConsumerLimits(subscribed_topics_max=2, classic_names_max=3)))
    return world


def naming(*topics: str) -> dict[str, Any]:
    return {"protocols": [GroupProtocol("cooperative-sticky", subscription(list(topics)))]}


@pytest.mark.parametrize("topics", [["a", "b", "c"], ["a", "b"]])
def test_a_classic_group_that_names_too_many_topics_is_not_converted(topics: list[str]) -> None:
    for level in (SUBSCRIBED_TOPICS_LEVEL - 1, SUBSCRIBED_TOPICS_LEVEL):
        world = limited_world(level)
        join_classic(world, Classic("c1"), "", **naming(*topics))
        join_classic(world, Classic("c2"), "", **naming("a", "b"))
        joined = world.consumers.join("new", "t")
        is_limited = level == SUBSCRIBED_TOPICS_LEVEL
        assert isinstance(joined, Rejected if is_limited else ConsumerMembership)


def test_a_classic_member_of_a_consumer_group_names_a_limited_number_of_topics() -> None:
    world = limited_world(SUBSCRIBED_TOPICS_LEVEL)
    world.consumers.join("new", "t")
    rejected = join_classic(world, Classic("c1"), "", **naming("a", "b", "c"))
    assert rejected == Rejected(Rejection.INCONSISTENT_PROTOCOL)
    assert isinstance(join_classic(world, Classic("c1"), "", **naming("a", "b")), Joined)
