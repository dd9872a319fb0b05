"""Consumer groups' targets are made some time apart, so that a thousand members may join together (KIP-1263)."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConsumerHeartbeat,
    CreatePartitions,
    DeleteTopic,
    Done,
    GroupProtocol,
    Joined,
    JoinGroup,
    RaiseLevel,
    Rejected,
)
from penstock.contracts.configs.members import CONSUMER_ASSIGNMENT_INTERVAL
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import ASSIGNMENT_INTERVAL_LEVEL, CONSUMER_GROUPS_LEVEL
from penstock.contracts.queries.consumer_groups import ConsumerHeartbeatQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups.assignment import classic_subscription_codec
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import State
from tests.unit.sequencer.core.core_consumers import Client, held, numbers
from tests.unit.sequencer.core.core_world import World, topic_id

INTERVAL_MS = 1_000
SOON_MS = 1_000
MOVING_MS = 3_000
USUAL_MS = 5_000


@pytest.fixture
def world() -> World:
    world = World(level=ASSIGNMENT_INTERVAL_LEVEL)
    world.topic("t", 6)
    return world


def targets_made(world: World) -> set[tuple[int, int]]:
    """Record, from now on, the epoch and the time of each target that is made for the group's members."""
    made: set[tuple[int, int]] = set()

    def look(state: State) -> None:
        consumer = state.groups["g"].consumer
        assert consumer is not None
        if consumer.assigned_ms:
            made.add((consumer.assignment_epoch, consumer.assigned_ms))

    world.on_entry.append(look)
    return made


def interval(world: World, value: str | None) -> Any:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    change = ConfigChange(CONSUMER_ASSIGNMENT_INTERVAL, operation, value or "")
    return world.do(AlterConfigs(world.now_ms, "", [change]))


def test_a_member_that_joins_within_the_interval_gets_nothing_at_the_current_epoch_and_returns_soon(
    world: World,
) -> None:
    first = world.consumers.client("a", "t")
    answer = world.consumers.join("b", "t")
    assert (numbers(first), first.epoch) == ([0, 1, 2, 3, 4, 5], 1)
    assert (held(answer.assignment), answer.member_epoch, answer.heartbeat_interval_ms) == ({}, 1, SOON_MS)
    assert world.group().state == "Assigning"


def test_after_the_interval_all_new_members_get_their_targets_together(world: World) -> None:
    made = targets_made(world)
    clients = [world.consumers.client(name, "t") for name in "abcdef"]
    world.consumers.settle(*clients)
    world.wait(INTERVAL_MS)
    world.consumers.settle(*clients)
    assert sorted(number for client in clients for number in numbers(client)) == [0, 1, 2, 3, 4, 5]
    assert {len(numbers(client)) for client in clients} == {1}
    assert len(made) == 2
    assert world.group().state == "Stable"


def test_a_heartbeat_within_the_interval_is_not_journaled(world: World) -> None:
    client = world.consumers.client("a", "t")
    world.consumers.beat(client)
    world.consumers.join("b", "t")
    before = world.state.sequence
    answer = world.consumers.beat(client)
    assert (answer.assignment, answer.heartbeat_interval_ms) == (None, SOON_MS)
    assert world.state.sequence == before


def test_after_an_assignment_members_return_soon_for_a_while_and_then_as_usual(world: World) -> None:
    client = world.consumers.client("a", "t")
    assert world.consumers.beat(client).heartbeat_interval_ms == SOON_MS
    world.wait(MOVING_MS)
    assert world.consumers.beat(client).heartbeat_interval_ms == USUAL_MS


def test_a_thousand_members_together_cost_two_targets_and_about_two_entries_each() -> None:
    world, count = World(level=ASSIGNMENT_INTERVAL_LEVEL), 1_000
    world.topic("t", count)
    world.on_entry.clear()  # checking the invariants of so many members takes long
    made = targets_made(world)
    clients = [world.consumers.client(f"m{number}", "t") for number in range(count)]
    world.now_ms += INTERVAL_MS
    for _ in range(2):  # a member that has all partitions gives some back at once
        world.consumers.beat(clients[0])
    world.consumers.settle(*clients)
    assert {len(numbers(client)) for client in clients} == {1}
    assert world.group().state == "Stable"
    assert len(made) == 2
    assert world.state.sequence < 2 * count + 10


def test_a_single_change_after_the_interval_does_not_wait(world: World) -> None:
    first = world.consumers.client("a", "t")
    world.consumers.settle(first)
    world.wait(INTERVAL_MS)
    second = world.consumers.client("b", "t")
    assert (second.epoch, world.group().state) == (2, "Reconciling")
    world.consumers.settle(first, second)
    assert (len(numbers(first)), len(numbers(second))) == (3, 3)


def test_partitions_of_a_departed_member_are_assigned_after_the_interval(world: World) -> None:
    clients = [world.consumers.client("a", "t")]
    world.wait(INTERVAL_MS)
    clients.append(world.consumers.client("b", "t"))
    world.consumers.settle(*clients)
    world.consumers.leave("a")
    world.consumers.settle(clients[1])
    assert len(numbers(clients[1])) == 3
    world.wait(INTERVAL_MS)
    world.consumers.settle(clients[1])
    assert numbers(clients[1]) == [0, 1, 2, 3, 4, 5]


def test_a_member_gives_back_unsubscribed_topics_before_the_next_target(
    world: World,
) -> None:
    world.topic("u", 2, number=2)
    client = world.consumers.client("a", "t", "u")
    answer = world.consumers.heartbeat("a", client.epoch, topics=["u"], owned=[])
    assert held(answer.assignment) == {topic_id(2): [0, 1]}
    assert world.group().consumer.assignment_epoch == 1  # type: ignore[union-attr]


def test_a_target_without_unsubscribed_topics_waits_for_partitions_to_be_given_back(world: World) -> None:
    world.topic("u", 2, number=2)
    client = world.consumers.client("a", "t", "u")
    world.consumers.take(client, world.consumers.heartbeat("a", client.epoch, topics=["u"]))
    assert client.owned == {topic_id(2): [0, 1]}
    assert world.consumers.member("a").revoking == {topic_id(1): [0, 1, 2, 3, 4, 5]}
    world.consumers.settle(client)
    assert (world.consumers.member("a").revoking, client.owned) == ({}, {topic_id(2): [0, 1]})


def test_with_an_interval_of_zero_no_member_waits(world: World) -> None:
    assert interval(world, "0") == Done()
    first, second = world.consumers.client("a", "t"), world.consumers.client("b", "t")
    world.consumers.settle(first, second)
    assert (len(numbers(first)), len(numbers(second))) == (3, 3)


@pytest.mark.parametrize("leap_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_was_wrong_once_makes_no_member_wait(world: World, leap_ms: int) -> None:
    world.now_ms += leap_ms
    first = world.consumers.client("a", "t")
    world.now_ms -= leap_ms
    second = world.consumers.client("b", "t")
    world.consumers.settle(first, second)
    assert (len(numbers(first)), len(numbers(second))) == (3, 3)


def test_members_of_the_classic_protocol_do_not_wait(world: World) -> None:
    client = world.consumers.client("a", "t")
    subscription = consumer_protocol_subscription("t")
    command = JoinGroup(
        world.now_ms, "g", "", "c1", None, False, "client", "/host", 10_000, 60_000, "consumer",
        [GroupProtocol("range", subscription)],
    )  # fmt: skip
    joined = world.do(command)
    assert isinstance(joined, Joined)
    assert joined.generation == 2
    world.consumers.settle(client)
    assert numbers(client) == [0, 1, 2]


def consumer_protocol_subscription(topic: str) -> bytes:
    name = topic.encode()
    data = b"\0\0" + (1).to_bytes(4) + len(name).to_bytes(2) + name + (-1).to_bytes(4, signed=True)
    assert classic_subscription_codec.read_subscription(data).topics == [topic]
    return data


@pytest.mark.parametrize("value", ["500", None])
def test_below_its_level_the_interval_can_be_neither_set_nor_unset(value: str | None) -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    before = encode_state(world.state)
    rejected = interval(world, value)
    assert isinstance(rejected, Rejected)
    assert rejected.rejection == Rejection.INVALID_CONFIG
    world.state.sequence -= 1
    assert encode_state(world.state) == before
    world.do(RaiseLevel(world.now_ms, ASSIGNMENT_INTERVAL_LEVEL))
    assert interval(world, value) == Done()


def test_below_its_level_no_member_waits_and_the_time_is_not_kept() -> None:
    world = World(level=CONSUMER_GROUPS_LEVEL)
    world.topic("t", 6)
    first, second = world.consumers.client("a", "t"), world.consumers.client("b", "t")
    world.consumers.settle(first, second)
    assert (len(numbers(first)), len(numbers(second))) == (3, 3)
    assert world.group().consumer.assigned_ms == 0  # type: ignore[union-attr]


def test_a_restored_group_waits_as_long_as_without_a_restore(world: World) -> None:
    world.consumers.client("a", "t")
    restored = decode_state(encode_state(world.state))
    command = heartbeat_of_new_member(world)
    asked = [queries.QUERIES["consumer_heartbeat"](state, ConsumerHeartbeatQuery(0, command)).outcome
             for state in (world.state, restored)]  # fmt: skip
    assert asked == [None, None]
    world.do(command)
    mine = world.state
    world.state = restored
    world.do(command)
    assert encode_state(restored) == encode_state(mine)


def heartbeat_of_new_member(world: World) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(world.now_ms, "g", "b", 0, None, None, 60_000, "client", "/host", ["t"], None, None, [])


def test_a_restore_matches_no_topic_with_a_pattern_again(world: World) -> None:
    for number in range(2, 20):
        world.topic(f"topic-{number}", 1, number=number)
    client = Client("a")
    world.consumers.take(client, world.consumers.join("a", pattern="topic-1.*", topics=None))
    data = encode_state(world.state)
    restored = decode_state(data)
    assert restored.subscriptions.patterns["topic-1.*"].pattern.names_matched == 0
    assert restored.subscriptions.patterns["topic-1.*"].topics == dict.fromkeys(f"topic-{n}" for n in range(10, 20))
    assert restored.subscriptions.patterns["topic-1.*"].groups == {"g": 1}
    assert encode_state(restored) == data
    world.state = restored
    world.topic("topic-100", 1, number=100)
    assert "topic-100" in restored.subscriptions.patterns["topic-1.*"].topics


def test_a_topic_that_grows_or_is_deleted_is_not_matched_again(world: World) -> None:
    world.consumers.take(Client("a"), world.consumers.join("a", pattern="t", topics=None))
    world.on_entry.clear()  # the invariants match all topics
    pattern = world.state.subscriptions.patterns["t"].pattern
    matched, epoch = pattern.names_matched, world.group().generation
    world.do(CreatePartitions(world.now_ms, "t", 8))
    assert world.group().generation == epoch + 1
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert world.group().generation == epoch + 2
    assert world.state.subscriptions.patterns["t"].pattern is pattern
    assert pattern.names_matched == matched


class Unread(dict[str, Any]):
    """Members; one of them can be looked up, but never all."""

    def __iter__(self) -> Any:
        raise AssertionError("the code looks at all members")

    values = items = keys = __iter__  # type: ignore[assignment]


def test_heartbeats_that_advance_a_member_look_at_no_other(world: World) -> None:
    clients = [world.consumers.client(f"m{number}", "t") for number in range(20)]
    world.wait(INTERVAL_MS)
    world.consumers.beat(clients[0])
    consumer = world.group().consumer
    assert consumer is not None
    consumer.members = Unread(consumer.members)
    world.on_entry.clear()  # the invariants look at all members
    for client in clients * 3:
        world.consumers.beat(client)
    assert world.group().state == "Stable"
