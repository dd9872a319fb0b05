"""No sequence of group commands halts a replica, by any protocol, from any sender, repeated or not.

Members of both protocols share few names and instance ids here, and use each other's. `World.do` checks all invariants
after each entry. A second replica, which starts from snapshots again and again, reaches the same state.
"""

from random import Random
from typing import Any

import pytest
from test_core_group_migration import subscription

from penstock.contracts.commands import (
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    CreatePartitions,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    ExpireMember,
    GroupProtocol,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetToCommit,
    SyncGroup,
    Tick,
    TopicPartitions,
)
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import ASSIGNMENT_INTERVAL_LEVEL, CONSUMER_GROUPS_LEVEL
from penstock_sequencer.core.groups.assignment.classic_subscription_codec import write_assignment
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import CLOCK_MS_MAX
from tests.unit.sequencer.core.core_world import World, topic_id

STEPS = 250
NUMBERS = range(6)


class RandomCommands:
    """Random commands that follow the group's state loosely, so that many of them are accepted."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(level=self.random.choice([CONSUMER_GROUPS_LEVEL, ASSIGNMENT_INTERVAL_LEVEL]))
        self.sent: list[Command] = []
        for number, name in enumerate(("a", "b"), 1):
            self.world.do(CreateTopic(self.world.now_ms, name, topic_id(number), 4, {}))

    def next(self) -> Command:
        """A new command, or a repetition of one of the last ones."""
        if self.sent and self.random.random() < 0.1:
            return self.random.choice(self.sent[-10:])
        kinds: list[Any] = [self.heartbeat] * 10 + [self.join] * 6 + [self.sync] * 3 + [self.leave] * 2
        kinds += [self.expire, self.commit, self.change_topics, self.change_topics, self.pass_time, self.pass_time]
        self.sent.append(self.random.choice(kinds)())
        return self.sent[-1]

    def identity(self) -> tuple[str, str | None]:
        return self.random.choice("abcde"), self.random.choice([None, None, None, "i", "j"])

    def seen(self) -> int:
        sequence = self.world.state.sequence
        return self.random.choice([-1, sequence, max(sequence - self.random.randint(0, 8), 0)])

    def epoch(self, member_id: str) -> int:
        group = self.world.state.groups.get("g")
        if group is None:
            return 0
        member = group.consumer.members.get(member_id) if group.consumer is not None else None
        return group.generation if member is None else member.epoch

    def heartbeat(self) -> Command:
        member_id, instance_id = self.identity()
        epoch = self.epoch(member_id)
        epoch = self.random.choice([0, 0, epoch, epoch, epoch, epoch, epoch - 1, -1, -2])
        is_complete = epoch == 0 or self.random.random() < 0.3
        return ConsumerHeartbeat(
            self.world.now_ms + self.random.choice([0, 0, 0, 0, -300, -5_000, CLOCK_MS_MAX]),
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=None,
            rebalance_timeout_ms=self.random.choice([3_000, 60_000]) if is_complete else -1,
            client_id="client",
            client_host="/host",
            topics=self.random.choice([["a"], ["a", "b"], [], ["b", "absent"]]) if is_complete else None,
            pattern=self.random.choice([None, "", "[ab]", ".*"]) if is_complete else None,
            assignor=self.random.choice([None, "uniform", "range"]),
            owned=[] if epoch == 0 else self.owned(member_id),
            seen_sequence=self.seen(),
        )

    def owned(self, member_id: str) -> list[TopicPartitions] | None:
        group = self.world.state.groups.get("g")
        member = group.consumer.members.get(member_id) if group is not None and group.consumer is not None else None
        choice = self.random.random()
        if choice < 0.3:
            return None
        if member is not None and choice < 0.8:
            return [TopicPartitions(topic, numbers) for topic, numbers in member.assigned.items()]
        return [TopicPartitions(topic_id(self.random.randint(1, 3)), self.some_numbers())]

    def some_numbers(self) -> list[int]:
        return sorted(self.random.sample(NUMBERS, self.random.randint(0, 4)))

    def join(self) -> Command:
        member_id, instance_id = self.identity()
        owned = {name: self.some_numbers() for name in self.random.sample(["a", "b"], self.random.randint(0, 2))}
        metadata = subscription(self.random.choice([["a"], ["a", "b"]]), owned, self.random.randint(0, 3))
        names = self.random.choice([["range"], ["range", "cooperative"], ["cooperative"]])
        return JoinGroup(
            self.world.now_ms,
            "g",
            self.random.choice([member_id, member_id, ""]),
            member_id + self.random.choice(["", "", "x"]),
            instance_id,
            self.random.random() < 0.3,
            "client",
            "/host",
            6_000,
            self.random.choice([3_000, 60_000]),
            "consumer",
            [GroupProtocol(name, metadata) for name in names],
            self.seen(),
        )

    def sync(self) -> Command:
        member_id, instance_id = self.identity()
        group = self.world.state.groups.get("g")
        members = [] if group is None else list(group.members)
        shares = [MemberAssignment(each, write_assignment(1, [("a", self.some_numbers())])) for each in members]
        return SyncGroup(self.world.now_ms, "g", self.epoch(member_id), member_id, instance_id, None, None, shares)

    def leave(self) -> Command:
        member_id, instance_id = self.identity()
        leaving = LeavingMember(self.random.choice([member_id, ""]), instance_id)
        return LeaveGroup(self.world.now_ms, "g", [leaving], self.seen())

    def expire(self) -> Command:
        return ExpireMember(self.world.now_ms, "g", self.identity()[0], self.world.state.sequence)

    def commit(self) -> Command:
        member_id = self.identity()[0]
        offsets = [OffsetToCommit("a", 0, self.random.randint(0, 9), -1, "")]
        return CommitOffsets(self.world.now_ms, "g", self.epoch(member_id), member_id, None, offsets, self.seen())

    def change_topics(self) -> Command:
        now_ms, name = self.world.now_ms, self.random.choice("ab")
        choice = self.random.randrange(10)
        if choice < 5:
            return CreateTopic(now_ms, name, topic_id(self.random.randint(1, 6)), self.random.randint(1, 4), {})
        if choice < 9:
            return CreatePartitions(now_ms, name, self.random.randint(2, 6))
        return self.random.choice([DeleteGroup(now_ms, "g"), DeleteTopic(now_ms, name, NO_TOPIC_ID)])

    def pass_time(self) -> Command:
        self.world.now_ms += self.random.choice([500, 3_000, 10_000, 61_000, 700_000])
        return Tick(self.world.now_ms)


@pytest.mark.parametrize("seed", range(40))
def test_no_sequence_of_group_commands_halts_a_replica_or_makes_two_differ(seed: int) -> None:
    commands = RandomCommands(seed)
    other = decode_state(encode_state(commands.world.state))
    for step in range(STEPS):
        command = commands.next()
        commands.world.do(command)
        apply_entry(other, other.sequence + 1, [[command]])
        if step % 10 == 0:
            assert encode_state(other) == encode_state(commands.world.state)
            other = decode_state(encode_state(other))
    assert encode_state(other) == encode_state(commands.world.state)
