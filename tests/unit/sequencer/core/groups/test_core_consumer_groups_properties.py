"""Any interleaving of members, topics and time against a naive model of the members' partitions.

The model is the clients themselves. Each has the partitions that it got and has not given back, until it learns that it
was removed. No two of them ever have one partition, except for a client that was removed and does not know. Epochs only
grow. After enough heartbeats of all clients, each has exactly its target.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from penstock.contracts.commands import (
    Command,
    CommitOffsets,
    ConsumerMembership,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    OffsetToCommit,
    PerItem,
    RaiseLevel,
    Rejected,
    TopicPartitions,
)
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import ASSIGNMENT_INTERVAL_LEVEL, CONSUMER_GROUPS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from tests.unit.sequencer.core.core_consumers import Client
from tests.unit.sequencer.core.core_world import World, topic_id

STEPS = 150
NAMES = ("one", "two", "three", "four", "five")
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topics": ["a"]},
    {"topics": ["a", "b"]},
    {"topics": ["b", "absent"]},
    {"topics": [], "pattern": "[ab]"},
    {"topics": None, "pattern": ".*"},
)
OUT = (Rejection.UNKNOWN_MEMBER, Rejection.FENCED_MEMBER_EPOCH, Rejection.UNKNOWN_GROUP)
any_seed = pytest.mark.parametrize("seed", range(30))


class Play:
    """Clients that join, leave, become silent, lose answers and repeat commands."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        level = self.random.choice([CONSUMER_GROUPS_LEVEL, ASSIGNMENT_INTERVAL_LEVEL])
        self.world = World(level=level)
        self.log: list[list[list[Command]]] = [[[RaiseLevel(self.world.now_ms, level)]]]
        self.record()
        self.topics = 0
        self.clients: dict[str, Client] = {}
        self.epochs: Counter[str] = Counter()
        self.group_epoch = 0
        for name in ("a", "b"):
            self.make_topic(name)

    def record(self) -> None:
        entry = self.world.entry

        def recording(*requests: Any) -> Any:
            self.log.append([list(each) for each in requests])
            return entry(*requests)

        self.world.entry = recording  # type: ignore[method-assign]

    def step(self) -> None:
        actions = (self.beat, self.beat, self.beat, self.beat, self.come, self.go, self.vanish, self.lose)
        others = (
            self.subscribe,
            self.change_topics,
            self.pass_time,
            self.commit,
            self.repeat,
            self.double,
            self.double,
        )
        self.random.choice(actions + others)()
        self.check()

    def some(self) -> Client | None:
        return self.random.choice(list(self.clients.values())) if self.clients else None

    def receive(self, client: Client, answer: Any) -> None:
        if isinstance(answer, Rejected):
            assert answer.rejection in OUT, answer
            del self.clients[client.name]
        else:
            client.has_reported = True
            self.world.consumers.take(client, answer)

    def beat(self) -> None:
        client = self.some()
        if client is not None:
            self.send(client)

    def send(self, client: Client, **given: Any) -> None:
        owned = None if client.has_reported else owned_by(client)
        given = {"instance_id": client.instance_id, "owned": owned, "seen_sequence": self.world.state.sequence} | given
        self.receive(client, self.world.consumers.heartbeat(client.name, client.epoch, **given))

    def double(self) -> None:
        """Each entry is journaled twice, and the clients get the second answers."""
        self.world.consumers.copies = 2
        self.random.choice([self.beat, self.beat, self.come, self.subscribe])()
        self.world.consumers.copies = 1

    def come(self) -> None:
        name = self.random.choice(NAMES)
        if name in self.clients:
            return
        client = Client(name, "i" if name == "five" else None)
        subscription = self.random.choice(SUBSCRIPTIONS) | {"assignor": self.random.choice([None, "uniform", "range"])}
        timeout_ms = self.random.choice([3_000, 60_000])
        given = {"rebalance_timeout_ms": timeout_ms, "seen_sequence": self.world.state.sequence} | subscription
        answer = self.world.consumers.join(name, instance_id=client.instance_id, **given)
        self.clients[name] = client
        self.receive(client, answer)

    def go(self) -> None:
        client = self.some()
        if client is not None:
            epoch = -2 if client.instance_id is not None and self.random.random() < 0.5 else -1
            seen = self.world.state.sequence
            answer = self.world.consumers.heartbeat(
                client.name, epoch, instance_id=client.instance_id, seen_sequence=seen
            )
            assert isinstance(answer, ConsumerMembership) or answer.rejection in OUT
            del self.clients[client.name]

    def vanish(self) -> None:
        """A client dies; its session ends, or its partitions are kept for it."""
        client = self.some()
        consumer = self.world.group().consumer if "g" in self.world.state.groups else None
        if client is not None and consumer is not None and client.name in consumer.members:
            self.world.consumers.expire(client.name)
            del self.clients[client.name]

    def lose(self) -> None:
        """An answer is lost: the client sends a complete heartbeat, with the last epoch that it knows."""
        client = self.some()
        if client is None:
            return
        seen, owned = self.world.state.sequence, None if client.has_reported else owned_by(client)
        self.world.consumers.heartbeat(
            client.name, client.epoch, instance_id=client.instance_id, owned=owned, seen_sequence=seen
        )
        self.send(client, owned=owned_by(client), topics=None, rebalance_timeout_ms=60_000)

    def subscribe(self) -> None:
        client = self.some()
        if client is not None:
            self.send(client, **(self.random.choice(SUBSCRIPTIONS[:4]) | {"owned": owned_by(client)}))

    def change_topics(self) -> None:
        name = self.random.choice(["a", "b", "ab"])
        topic = self.world.state.topics.get(name)
        if topic is None:
            self.make_topic(name)
        elif self.random.random() < 0.6:
            self.world.do(CreatePartitions(self.world.now_ms, name, len(topic.partitions) + 2))
        else:
            self.world.do(DeleteTopic(self.world.now_ms, name, NO_TOPIC_ID))

    def make_topic(self, name: str) -> None:
        self.topics += 1
        partitions = self.random.randrange(1, 7)
        self.world.do(CreateTopic(self.world.now_ms, name, topic_id(self.topics), partitions, {}))

    def pass_time(self) -> None:
        self.world.wait(self.random.choice([100, 2_000]))

    def commit(self) -> None:
        """A client that is no member at its epoch commits nothing."""
        client = self.some()
        if client is None or "a" not in self.world.state.topics:
            return
        offsets = [OffsetToCommit("a", 0, 1, -1, "")]
        world = self.world
        answer = world.do(CommitOffsets(world.now_ms, "g", client.epoch, client.name, None, offsets))
        consumer = world.group().consumer
        member = None if consumer is None else consumer.members.get(client.name)
        is_member = member is not None and member.epoch == client.epoch
        assert isinstance(answer, PerItem) == is_member

    def repeat(self) -> None:
        """An old command is journaled again, and does no harm to the clients."""
        heartbeats = [entry[0] for entry in self.log if type(entry[0][0]).__name__ == "ConsumerHeartbeat"]
        if heartbeats:
            before = {name: member_of(self.world, name) for name in self.clients}
            self.world.entry(self.random.choice(heartbeats))
            after = {name: member_of(self.world, name) for name in self.clients}
            assert all(before[name] == after[name] for name in self.clients if after[name] is not None)

    def check(self) -> None:
        """No two members have one partition; no epoch goes back."""
        group = self.world.state.groups.get("g")
        members = {} if group is None or group.consumer is None else group.consumer.members
        present = {name: client for name, client in self.clients.items() if name in members}
        held = Counter(
            (topic, number)
            for client in present.values()
            for topic, numbers in client.owned.items()
            for number in numbers
        )
        for client in present.values():
            assert client.epoch <= members[client.name].epoch
            for topic, numbers in client.owned.items():
                mine = (members[client.name].assigned, members[client.name].revoking)
                assert {*numbers} <= {number for each in mine for number in each.get(topic, ())}
        assert not held or max(held.values()) == 1, held
        if group is not None:
            assert group.generation >= self.group_epoch
            self.group_epoch = group.generation

    def settle(self) -> None:
        """All clients send heartbeats again and again; silent members are removed."""
        for name in list(self.world.group().consumer.members if "g" in self.world.state.groups else ()):  # type: ignore[union-attr]
            if name not in self.clients:
                self.world.consumers.expire(name)
        for _ in range(12):
            self.world.wait(1_000)
            for client in list(self.clients.values()):
                self.send(client)
                self.check()
        if self.clients:
            self.check_rest()

    def check_rest(self) -> None:
        """Each partition of each subscribed topic has one reader, which subscribes it."""
        group = self.world.group()
        assert group.consumer is not None
        assert (group.state, {*group.consumer.members}) == ("Stable", {*self.clients})
        subscribed: dict[bytes, set[str]] = {}
        for name, member in group.consumer.members.items():
            for topic in self.world.state.topics.values():
                uses = self.world.state.subscriptions.patterns
                if topic.name in member.topics or (member.pattern and topic.name in uses[member.pattern].topics):
                    subscribed.setdefault(topic.topic_id, set()).add(name)
        for topic_id_, names in subscribed.items():
            count = len(self.world.state.topics_by_id[topic_id_].partitions)
            readers = {name: self.clients[name].owned.get(topic_id_, []) for name in names}
            assert sorted(number for numbers in readers.values() for number in numbers) == list(range(count))
        assert {topic for client in self.clients.values() for topic in client.owned} <= subscribed.keys()


def owned_by(client: Client) -> list[TopicPartitions]:
    return [TopicPartitions(topic, numbers) for topic, numbers in client.owned.items()]


def member_of(world: World, name: str) -> Any:
    consumer = world.group().consumer
    member = None if consumer is None else consumer.members.get(name)
    return None if member is None else (member.epoch, member.state, member.assigned, member.revoking, member.topics)


@any_seed
def test_no_partition_has_two_readers_and_all_have_one_in_the_end(seed: int) -> None:
    play = Play(seed)
    for _ in range(STEPS):
        play.step()
    play.settle()
    check_replay(play)


def check_replay(play: Play) -> None:
    """The same log gives the same bytes, also with a snapshot in between."""
    state = new_state()
    for sequence, entry in enumerate(play.log, 1):
        apply_entry(state, sequence, [list(each) for each in entry])
        if sequence % 40 == 0:
            state = decode_state(encode_state(state))
    assert encode_state(state) == encode_state(play.world.state)
