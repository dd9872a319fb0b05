"""Random steps with a share group: members join, leave, acquire and acknowledge; administrators change the group."""

from random import Random

from penstock.contracts.commands import (
    NO_OFFSET,
    AcknowledgedRange,
    AcknowledgeType,
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    ConfigChange,
    ConfigOperation,
    ExpireMember,
    ShareHeartbeat,
    ShareOffset,
    SharePartition,
    ShareRecords,
)
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.share_group import ShareGroup

GROUP = "s"
MEMBERS = ["m1", "m2", "m3", "m4"]
ACKNOWLEDGE_TYPES = [
    AcknowledgeType.ACCEPT,
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.UNREAD,
]
CONFIGS = [
    ("share.record.lock.duration.ms", "1000"),
    ("share.auto.offset.reset", "earliest"),
    ("share.auto.offset.reset", "by_duration:P99999D"),
    ("share.assignment.interval.ms", "5000"),
]


def share_command(random: Random, state: State, now_ms: int, group_id: str = GROUP) -> Command:
    """The next step of one of the group's members or administrators."""
    group = state.share_groups.get(group_id)
    if group is None or not group.members or random.random() < 0.2:
        return _beat(random, state, now_ms, group_id, random.choice(MEMBERS), 0)
    member = random.choice(list(group.members.values()))
    if random.random() < 0.2:
        return _beat(random, state, now_ms, group_id, member.member_id, random.choice([member.epoch] * 6 + [0, -1]))
    if random.random() < 0.1:
        return _administer(random, state, now_ms, group)
    return _records(random, now_ms, group, member.member_id)


def _beat(random: Random, state: State, now_ms: int, group_id: str, member_id: str, epoch: int) -> Command:
    names = random.sample(list(state.topics), min(len(state.topics), random.randint(0, 3)))
    topics = names if epoch == 0 or random.random() < 0.3 else None
    return ShareHeartbeat(now_ms, group_id, member_id, epoch, None, "client", "host", topics)


def _records(random: Random, now_ms: int, group: ShareGroup, member_id: str) -> Command:
    """Acknowledge the member's records in a few partitions, and acquire others."""
    shares = [(topic, number) for topic, each in group.partitions.items() for number in each]
    partitions = []
    for topic, number in random.sample(shares, min(len(shares), 3)):
        acknowledged = [
            AcknowledgedRange(hold.first, hold.last, bytes([random.choice(ACKNOWLEDGE_TYPES)]))
            for hold in group.partitions[topic][number].holds
            if hold.member_id == member_id and random.random() < 0.6
        ]
        first = random.choice([0, 0, NO_OFFSET])
        partitions.append(SharePartition(topic, number, acknowledged, first, -1, random.randint(0, 9)))
    through = random.choice([0, 0, 0, group.acquisitions])
    ticket = random.randint(0, 3)
    return ShareRecords(
        now_ms, group.group_id, member_id, partitions, random.randint(0, 20), through, ticket, through // 2
    )


def _administer(random: Random, state: State, now_ms: int, group: ShareGroup) -> Command:
    """Change the group's configurations or offsets, or expire a member."""
    name, value = random.choice(CONFIGS)
    change = ConfigChange(name, random.choice([ConfigOperation.SET, ConfigOperation.DELETE]), value)
    topic = random.choice([*state.topics, "none"])
    return random.choice(
        [
            AlterGroupConfigs(now_ms, group.group_id, [change]),
            ExpireMember(now_ms, group.group_id, random.choice(list(group.members)), state.sequence),
            AlterShareOffsets(now_ms, group.group_id, [ShareOffset(topic, 0, random.randint(0, 9))]),
        ]
    )
