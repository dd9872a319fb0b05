"""States of share groups (KIP-932): members, epochs, targets, and the group's first offset in each partition.

The group's epoch grows whenever its members, their subscriptions, or the subscribed topics change. All members then get
new targets at once, but not sooner than `share.assignment.interval.ms` after the last ones. So a thousand members may
join together. A member whose target has changed gets it by its next heartbeat, which is an entry. No member has to give
partitions back first, since a partition may belong to several members. The group shares a topic from its first
subscription on; after that it misses no record.
"""

from collections.abc import Iterable

from penstock.contracts.configs.groups import (
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    share_config,
)
from penstock.contracts.ids import TopicId
from penstock_sequencer.core.groups.assignment import subscriptions
from penstock_sequencer.core.groups.assignment.assignors import assign_simply
from penstock_sequencer.core.groups.departed_members import record_departed, record_joined
from penstock_sequencer.core.groups.timers import set_deadline
from penstock_sequencer.core.share.first_offsets import Beginning, beginning, first_offset
from penstock_sequencer.core.share.partition import Rules, rules_of
from penstock_sequencer.core.share.pending import record_dead_letters, remove_dead_letters
from penstock_sequencer.core.share.release import release_member, release_overdue
from penstock_sequencer.core.state.cluster import EMPTY, STABLE, Changes, Partition, State, Topic
from penstock_sequencer.core.state.group_sizes import count_member, names_bytes
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES, PARTITION_BYTES
from penstock_sequencer.core.state.share_group import ShareGroup, ShareMember, SharePartition
from penstock_sequencer.core.state.shares import count_group


def new_group(state: State, group_id: str, owner: int) -> ShareGroup:
    """A group without members, added to the state; `owner` is the number of the principal that makes it."""
    group = state.share_groups[group_id] = ShareGroup(group_id, owner=owner)
    count_group(state, owner, 1)
    return group


def state_of(group: ShareGroup) -> str:
    """The group's state, as Kafka names it."""
    return STABLE if group.members else EMPTY


def session_timeout_ms(state: State, group: ShareGroup) -> int:
    """How long a member may be silent."""
    return int(share_config(SHARE_SESSION_TIMEOUT, state.group_configs.get(group.group_id, {})))


def heartbeat_interval_ms(state: State, group: ShareGroup) -> int:
    """The time to a member's next heartbeat: shorter if its partitions are about to change."""
    interval_ms = int(share_config(SHARE_HEARTBEAT_INTERVAL, state.group_configs.get(group.group_id, {})))
    return min(interval_ms, state.limits.share.share_heartbeat_soon_ms) if group.target_due_ms else interval_ms


def enter_member(state: State, group: ShareGroup, member: ShareMember) -> None:
    """Add the member to the group and to the tables."""
    before = 0 if group.members else _count(group)
    group.members[member.member_id] = member
    if len(group.members) == 1:
        state.share_record_count += _count(group) - before
    record_joined(state, group.group_id, member.member_id)
    subscriptions.subscribe(state, group.group_id, member.topics, "")


def counted(group: ShareGroup, share: SharePartition) -> int:
    """The partition's part of `share_records_max`; without members it is at most its number of holds.

    Each record of members may get a hold of its own. So a group that no client reads any more leaves room for others.
    """
    return share.in_flight if group.members else min(len(share.holds), share.in_flight)


def _count(group: ShareGroup) -> int:
    return sum(counted(group, share) for shares in group.partitions.values() for share in shares.values())


def subscribe(state: State, group: ShareGroup, member: ShareMember, topics: list[str]) -> None:
    """Replace the member's subscription."""
    subscriptions.subscribe(state, group.group_id, topics, "")
    subscriptions.unsubscribe(state, group.group_id, member.topics, "")
    member.topics = topics


def remove_member(state: State, group: ShareGroup, member: ShareMember, changes: Changes, *, unread: bool) -> None:
    """Remove the member; its records are delivered again, and its partitions go to other members."""
    del group.members[member.member_id]
    subscriptions.unsubscribe(state, group.group_id, member.topics, "")
    count_member(state, member, 0)
    record_departed(state, group.group_id, member.member_id)
    release(state, group, member.member_id, changes, unread=unread)
    if not group.members:
        in_flight = sum(share.in_flight for shares in group.partitions.values() for share in shares.values())
        state.share_record_count += _count(group) - in_flight
    renew_targets(state, group, [])
    remove_if_bare(state, group)


def release(state: State, group: ShareGroup, member_id: str, changes: Changes, *, unread: bool) -> None:
    """Release all records that the member has acquired."""
    rules = rules_of(state, group.group_id)
    for topic_id, shares in group.partitions.items():
        for number, share in shares.items():
            if share.due_ms and release_member(state, rules, share, member_id, unread=unread):
                changes.groups[group.group_id] = None
                if rules.has_dead_letters:
                    record_dead_letters(state, group, (topic_id, number), share)


def fire(state: State, group: ShareGroup, changes: Changes) -> None:
    """End locks and delays, and make targets that are due; the next deadline is in the future."""
    rules = rules_of(state, group.group_id)
    if 0 < group.target_due_ms <= state.clock_ms:
        assign_all(state, group)
    due_ms = group.target_due_ms
    for topic_id, shares in group.partitions.items():
        for number, share in shares.items():
            if 0 < share.due_ms <= state.clock_ms:
                changes.share_locks_ended += _release_overdue(state, group, rules, share)
                if rules.has_dead_letters:
                    record_dead_letters(state, group, (topic_id, number), share)
            if share.due_ms:
                due_ms = min(due_ms or share.due_ms, share.due_ms)
    assert not due_ms or due_ms > state.clock_ms, "the next deadline is in the future"
    set_deadline(state, group.group_id, due_ms)
    changes.groups[group.group_id] = None


def _release_overdue(state: State, group: ShareGroup, rules: Rules, share: SharePartition) -> int:
    uncounted = share.in_flight - counted(group, share)
    ended = release_overdue(state, rules, share)
    # The change of `in_flight` is counted. Without members the number of holds counts, and ended delays merge holds.
    state.share_record_count += counted(group, share) - share.in_flight + uncounted
    return ended


def record_due(state: State, group: ShareGroup, due_ms: int) -> None:
    """Make the group due at this time, unless it is due earlier."""
    before_ms = state.deadlines.get(group.group_id, 0)
    if not before_ms or due_ms < before_ms:
        set_deadline(state, group.group_id, due_ms)


def renew_targets(state: State, group: ShareGroup, names: Iterable[str], where: Beginning | None = None) -> None:
    """Start an epoch after a change, in these topics, on which targets depend; make targets now or soon.

    In topics that are new to the group it begins at `where`, by default the place of its configuration now.
    """
    group.epoch += 1
    for name in names:
        if name in state.topics:
            begin(state, group, state.topics[name], where)
    if not group.members:
        group.assignment_epoch, group.assigned_ms, group.target_due_ms = group.epoch, 0, 0
    elif not group.target_due_ms:
        due_ms = group.assigned_ms + _pause_ms(state, group) if group.assigned_ms else 0
        if due_ms <= state.clock_ms:
            assign_all(state, group)
        else:
            group.target_due_ms = due_ms
            record_due(state, group, due_ms)


def _pause_ms(state: State, group: ShareGroup) -> int:
    """How long the group keeps its targets; longer if they take much work."""
    fragments = sum(len(member.topics) for member in group.members.values()) + sum(map(len, group.partitions.values()))
    interval_ms = int(share_config(SHARE_ASSIGNMENT_INTERVAL, state.group_configs.get(group.group_id, {})))
    return max(interval_ms, fragments // state.limits.share.share_fragments_per_pause_ms)


def narrow_target(state: State, member: ShareMember) -> None:
    """Remove topics from the member's target that it no longer subscribes, until the next target."""
    topic_ids = [state.topics[name].topic_id for name in member.topics if name in state.topics]
    member.target = {topic_id: member.target[topic_id] for topic_id in topic_ids if topic_id in member.target}


def assign_all(state: State, group: ShareGroup) -> None:
    """Make all members' targets for the group's epoch."""
    group.assignment_epoch, group.assigned_ms, group.target_due_ms = group.epoch, state.clock_ms, 0
    subscribers: dict[TopicId, list[str]] = {}
    for member_id, member in group.members.items():
        for name in member.topics:
            topic = state.topics.get(name)
            if topic is not None:
                subscribers.setdefault(topic.topic_id, []).append(member_id)
    counts: dict[TopicId, int] = {}
    for topic_id in subscribers:
        topic = state.topics_by_id[topic_id]
        counts[topic_id] = len(topic.partitions) if begin(state, group, topic) else 0
    targets = assign_simply(subscribers, counts)
    for member_id, member in group.members.items():
        member.target = targets.get(member_id, {})
        weigh(state, member)


def weigh(state: State, member: ShareMember) -> None:
    """Update the member's size after a change."""
    held = sum(map(len, (*member.assigned.values(), *member.target.values())))
    size_bytes = MEMBER_OVERHEAD_BYTES + sum(map(len, member.topics)) + held * PARTITION_BYTES
    size_bytes += names_bytes(state, member.member_id, member.rack_id, member.client_id, member.client_host)
    count_member(state, member, size_bytes)


def begin(state: State, group: ShareGroup, topic: Topic, where: Beginning | None = None) -> bool:
    """Share all partitions of the topic from now on; whether the limit of shared partitions allows this.

    As in Kafka, partitions that a topic gets later are read from their first offset.
    """
    shares = group.partitions.get(topic.topic_id, {})
    missing = len(topic.partitions) - len(shares)
    if missing <= 0:
        return True
    if state.share_partition_count + missing > state.limits.share.share_partitions_max:
        return False
    if shares:
        where = Beginning(from_start=True)
    elif where is None:
        where = beginning(state, group.group_id, state.clock_ms)
    for partition in topic.partitions:
        if partition.number not in shares:
            enter_share(state, group, partition, first_offset(partition, where))
    return True


def enter_share(state: State, group: ShareGroup, partition: Partition, start: int) -> None:
    """Set the group's next offset in the partition; records in flight there are given up."""
    shares = group.partitions.setdefault(partition.topic_id, {})
    before = shares.get(partition.number)
    if before is None:
        state.share_partition_count += 1
        state.share_topics.setdefault(partition.topic_id, {})[group.group_id] = None
    else:
        state.share_record_count -= counted(group, before)
        remove_dead_letters(state, group, (partition.topic_id, partition.number))
    shares[partition.number] = SharePartition(start)


def enter_group(state: State, group: ShareGroup) -> None:
    """Add the group to the state and the derived tables, after a snapshot was read."""
    state.share_groups[group.group_id] = group
    for member in group.members.values():
        subscriptions.subscribe(state, group.group_id, member.topics, "")
    for topic_id, shares in group.partitions.items():
        state.share_topics.setdefault(topic_id, {})[group.group_id] = None
        state.share_partition_count += len(shares)
        state.share_record_count += sum(counted(group, share) for share in shares.values())
        for number, share in shares.items():
            record_dead_letters(state, group, (topic_id, number), share)


def remove_topic(state: State, group: ShareGroup, topic_id: TopicId) -> None:
    """Remove the group's position in the topic."""
    shares = group.partitions.pop(topic_id)
    state.share_partition_count -= len(shares)
    state.share_record_count -= sum(counted(group, share) for share in shares.values())
    for number in shares:
        remove_dead_letters(state, group, (topic_id, number))
    groups = state.share_topics[topic_id]
    del groups[group.group_id]
    if not groups:
        del state.share_topics[topic_id]


def remove_deleted_topic(state: State, topic_id: TopicId) -> None:
    """Remove a deleted topic from all groups."""
    # Sorted: after a snapshot the table has another order, and principals without entries are kept in this one.
    for group_id in sorted(state.share_topics.get(topic_id, ())):
        group = state.share_groups[group_id]
        remove_topic(state, group, topic_id)
        remove_if_bare(state, group)


def remove_group(state: State, group: ShareGroup) -> None:
    """Remove a group without members."""
    assert not group.members, "the group has no members"
    for topic_id in list(group.partitions):
        remove_topic(state, group, topic_id)
    count_group(state, group.owner, -1)
    del state.share_groups[group.group_id]
    set_deadline(state, group.group_id, 0)


def remove_if_bare(state: State, group: ShareGroup) -> None:
    """Remove the group if it has neither members nor partitions."""
    if not group.members and not group.partitions:
        remove_group(state, group)
