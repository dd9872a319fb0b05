"""Random walks of several share groups: all invariants, and the same state with a snapshot after any entry.

Groups share topics that come and go. They have dead letters, delays, small limits, and members of several principals.
"""

from random import Random
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    DeadRecords,
    DeleteGroup,
    DeleteShareOffsets,
    DeleteTopic,
    EndDeadLetters,
    EndedDeadLetters,
    ShareOffset,
    Tick,
)
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.share import DeadLetterGroupsQuery
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import Limits, PrincipalLimits, ShareLimits
from penstock_sequencer.core.state.share_group import PENDING
from tests.unit.sequencer.core import core_share_walks
from tests.unit.sequencer.core.core_world import World, batch, topic_id

ENTRIES = 250
GROUPS, TOPICS, PRINCIPALS = ("s1", "s2"), ("t", "u", "v"), ("", "User:a", "User:b")
LIMITS = Limits(
    shares=PrincipalLimits(principals_removed_per_tick=1),
    share=ShareLimits(share_records_max=60, share_partitions_max=9),
)
OPENING = (
    ("errors.deadletterqueue.topic.name", "dlq.x"),
    ("share.auto.offset.reset", "earliest"),
    ("share.assignment.interval.ms", "0"),
)
CONFIGS = (
    ("errors.deadletterqueue.topic.name", "dlq.x"),
    ("penstock.share.redelivery.delay.ms", "700"),
    ("share.delivery.count.limit", "2"),
    ("share.delivery.count.limit", "4"),
    ("share.record.lock.duration.ms", "1000"),
    ("share.auto.offset.reset", "earliest"),
    ("share.auto.offset.reset", "by_duration:PT1S"),
    ("share.assignment.interval.ms", "0"),
)


class Walk:
    """The next commands, chosen by the state."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(LIMITS, NEWEST_LEVEL)
        for number, name in enumerate(TOPICS, 1):
            self.world.topic(name, 2, number)
        opening = [ConfigChange(name, ConfigOperation.SET, value) for name, value in OPENING]
        for group_id in GROUPS:
            self.world.do(AlterGroupConfigs(self.world.now_ms, group_id, opening))

    def command(self) -> Command:
        random, world, group_id = self.random, self.world, self.random.choice(GROUPS)
        topics, letters = list(world.state.topics.values()), self.pending(group_id)
        kind = random.choices(
            ("share", "config", "offsets", "remove", "letters", "create", "delete", "write", "forget", "wait"),
            (45, 8, 5, 4, 2 * bool(letters), 5, 3, 9 * bool(topics), 2, 6),
        )[0]
        match kind:
            case "share":
                command = core_share_walks.share_command(random, world.state, world.now_ms, group_id)
            case "config":
                (name, value), change = random.choice(CONFIGS), random.choice(list(ConfigOperation)[:2])
                command = AlterGroupConfigs(world.now_ms, group_id, [ConfigChange(name, change, value)])
            case "offsets":
                offset = ShareOffset(random.choice(TOPICS), random.randrange(2), random.randrange(6))
                command = AlterShareOffsets(world.now_ms, group_id, [offset])
            case "remove":
                command = DeleteShareOffsets(world.now_ms, group_id, [random.choice(TOPICS)])
            case "letters":
                command = EndDeadLetters(world.now_ms, group_id, [random.choice(letters)])
            case "create":
                name, number = random.choice(TOPICS), topic_id(random.randrange(1, 30))
                command = CreateTopic(world.now_ms, name, number, random.randrange(1, 3), {})
            case "delete":
                command = DeleteTopic(world.now_ms, random.choice(TOPICS), NO_TOPIC_ID)
            case "write":
                topic = random.choice(topics)
                number = next(each for each in range(1, 30) if topic_id(each) == topic.topic_id)
                records = batch(random.randrange(1, 6), timestamp=world.now_ms - random.randrange(3_000))
                command = world.segment_command((number, random.randrange(len(topic.partitions)), [records]))
            case "forget":
                command = DeleteGroup(world.now_ms, group_id)
            case _:
                world.now_ms += random.choice([100, 500, 1_100, 3_000, 50_000])
                command = Tick(world.now_ms)
        has_principal = "principal" in command.__struct_fields__
        return msgspec.structs.replace(command, principal=random.choice(PRINCIPALS)) if has_principal else command

    def pending(self, group_id: str) -> list[EndedDeadLetters]:
        """Ends of pending dead letters of the group, some of them of too many or too few records."""
        group, random = self.world.state.share_groups.get(group_id), self.random
        return [
            EndedDeadLetters(
                topic_id, number, [DeadRecords(hold.first, hold.last + random.choice([-1, 0, 2]), hold.acquisition)]
            )
            for topic_id, shares in (group.partitions if group is not None else {}).items()
            for number, share in shares.items()
            for hold in share.holds
            if hold.status in PENDING
        ]


def first_letters(state: Any) -> Any:
    return queries.QUERIES["dead_letter_groups"](state, DeadLetterGroupsQuery(0, ""))


@pytest.mark.parametrize("seed", range(20))
def test_any_walk_keeps_the_invariants_and_a_snapshot_anywhere_changes_nothing(seed: int) -> None:
    walk = Walk(seed)
    world, other = walk.world, decode_state(encode_state(walk.world.state), LIMITS)
    for _ in range(ENTRIES):
        entry = [[walk.command()]]
        outcomes = world.entry(*entry)
        assert apply_entry(other, world.state.sequence, entry)[0] == outcomes
        if walk.random.random() < 0.3:
            other = decode_state(encode_state(other), LIMITS)
        assert encode_state(other) == encode_state(world.state)
        assert first_letters(other) == first_letters(world.state)
