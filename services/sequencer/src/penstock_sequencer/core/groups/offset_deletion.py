"""Deletion of committed offsets: by OffsetDelete, or because they expire.

An offset expires `offsets.retention.minutes` after its commit, unless members of its group read the topic. If the group
had members, its offsets also stay that long after the last member left. Kafka then removes all offsets of a classic
group, even newer ones of clients that are no members. Penstock keeps those, so that such a client does not lose its
place. Offsets that a transaction may still replace stay, and so do offsets of a group that rebalances.

A leap of a clock must not expire offsets. So the time here is the uptime clock `lived_ms`, which counts at most
`leap_max_ms` between two entries (timers.py). An offset's age follows from the entry that stored it: `ages` records
the uptime clock beside the journal sequence. There are about a hundred such rows, so an age is exact to a hundredth of
the retention. The search for expired offsets goes round all groups, some at each Tick.

A group's members read the topics that they subscribe. Members of consumer groups name these in their heartbeats.
Members of classic groups name them to each other, in metadata that the sequencer need not understand. But under the
protocol type "consumer" that metadata begins with the topics' names (KIP-496).
"""

from collections.abc import Iterator

from penstock.contracts.commands import DeletedOffset, DeleteOffsets, PerItem, Rejected
from penstock.contracts.configs.members import offsets_retention_ms
from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL, SUBSCRIBED_TOPICS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.assignment.classic_subscription_codec import (
    NAMES_UNLIMITED,
    PROTOCOL_TYPE,
    Malformed,
    read_topics,
)
from penstock_sequencer.core.groups.classic_group import metadata
from penstock_sequencer.core.groups.offset_commit import size_bytes
from penstock_sequencer.core.groups.pending_offsets import pending_partitions
from penstock_sequencer.core.groups.streams.topology import source_subtopologies
from penstock_sequencer.core.groups.timers import record_idle
from penstock_sequencer.core.state.cluster import EMPTY, STABLE, Changes, Group, State
from penstock_sequencer.core.state.consumer_group import ConsumerGroup
from penstock_sequencer.core.state.group_sizes import members_of

_NO_SEQUENCE = -1  # no entry is that old
_ReadNow = dict[str, None] | None  # None: members may read any topic


def delete_offsets(state: State, command: DeleteOffsets, changes: Changes) -> PerItem | Rejected:
    """Delete these offsets; one rejection for each that must stay."""
    rejected = preview_deletion(state, command)
    if rejected is not None:
        return rejected
    group = state.groups[command.group_id]
    read_now = _topics_read(state, group)
    rejections = [_delete(state, group, item, read_now, command.seen_sequence) for item in command.offsets]
    changes.groups[command.group_id] = None
    return PerItem(rejections)


def preview_deletion(state: State, command: DeleteOffsets) -> Rejected | None:
    """The rejection that `delete_offsets` would answer now; None if it may delete offsets."""
    if not command.group_id:
        return Rejected(Rejection.INVALID_GROUP)
    group = state.groups.get(command.group_id)
    if group is None:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id[:256]} not found.")
    if (
        group.state != EMPTY
        and group.protocol_type != PROTOCOL_TYPE
        and group.consumer is None
        and group.streams is None
    ):
        return Rejected(Rejection.GROUP_NOT_EMPTY, "the group's members may read any topic")
    return None


def _delete(state: State, group: Group, item: DeletedOffset, read_now: _ReadNow, seen_sequence: int) -> Rejection:
    topic = state.topics.get(item.topic)
    if topic is None or not 0 <= item.partition < len(topic.partitions):
        return Rejection.UNKNOWN_TOPIC
    if _is_read(read_now, item.topic):
        return Rejection.GROUP_SUBSCRIBED
    committed = group.offsets.get(item.topic, {}).get(item.partition)
    if committed is None:
        return Rejection.NONE
    if 0 <= seen_sequence < committed.sequence:
        return Rejection.STALE
    _remove(state, group, [(item.topic, item.partition)])
    return Rejection.NONE


def expire_offsets(state: State) -> None:
    """Expire offsets of some groups; called with each Tick."""
    if state.level < OFFSET_EXPIRY_LEVEL:
        return
    retention_ms = offsets_retention_ms(state.cluster_configs)
    _record_age(state, retention_ms)
    limits = state.limits.offsets
    groups, left = limits.groups_swept_per_tick, limits.offsets_swept_per_tick
    old_sequence = _old_sequence(state, retention_ms) if state.expiry_round else _NO_SEQUENCE
    while state.expiry_round and groups > 0 and left > 0:
        group = state.groups.get(state.expiry_round.popleft())
        groups -= 1
        if group is not None and group.offsets:
            left -= _expire(state, group, old_sequence, retention_ms)


def _record_age(state: State, retention_ms: int) -> None:
    """Record the uptime clock when a step has passed, remove rows older than the retention, begin the next round."""
    step_ms = max(retention_ms // state.limits.offsets.expiry_steps, 1)
    ages = state.ages
    if ages and state.lived_ms < ages[-1][0] + step_ms:
        return
    ages.append((state.lived_ms, state.sequence))
    while len(ages) > 1 and ages[1][0] <= state.lived_ms - retention_ms:
        ages.popleft()
    if not state.expiry_round:
        state.expiry_round.extend(group.group_id for group in state.groups.values() if group.offsets)


def _old_sequence(state: State, retention_ms: int) -> int:
    """The last entry that is at least that old."""
    found = _NO_SEQUENCE
    for lived_ms, sequence in state.ages:
        if lived_ms > state.lived_ms - retention_ms:
            break
        found = sequence
    return found


def _expire(state: State, group: Group, old_sequence: int, retention_ms: int) -> int:
    """Expire offsets of one group; returns the work done, counted in offsets."""
    has_emptied = group.protocol_type and group.state == EMPTY and group.emptied_ms >= 0
    if has_emptied and state.lived_ms - group.emptied_ms < retention_ms:
        old_sequence = _NO_SEQUENCE
    work = sum(len(partitions) for partitions in group.offsets.values())
    old = list(_old_offsets(state, group, old_sequence))
    # Most groups have no old offsets; then their members' topics are not needed.
    is_classic = group.consumer is None and group.streams is None
    if not old or (is_classic and group.state not in (EMPTY, STABLE)):
        return work
    read_now = _topics_read(state, group)
    unused = [(topic, number) for topic, number in old if not _is_read(read_now, topic)]
    if unused:
        _remove(state, group, unused)
    return work + state.limits.offsets.offsets_per_member * len(list(members_of(group)))


def _old_offsets(state: State, group: Group, old_sequence: int) -> Iterator[tuple[str, int]]:
    """Offsets stored by this entry or before it, without those that a transaction may replace."""
    pending = pending_partitions(state, group.group_id)
    for topic, partitions in group.offsets.items():
        for number, committed in partitions.items():
            if committed.sequence <= old_sequence and number not in pending.get(topic, ()):
                yield topic, number


def _remove(state: State, group: Group, gone: list[tuple[str, int]]) -> None:
    """Remove these offsets of the group."""
    for topic, number in gone:
        partitions = group.offsets[topic]
        state.group_bytes -= size_bytes(partitions.pop(number))
        if not partitions:
            del group.offsets[topic]
    state.removed_sequence = state.sequence
    record_idle(state, group)


def _topics_read(state: State, group: Group) -> _ReadNow:
    """The topics that the group's members read now; None if they are unknown."""
    if group.consumer is not None:
        return _subscribed(state, group.group_id, group.consumer)
    if group.streams is not None:
        return dict.fromkeys(source_subtopologies(group.streams.topology) if group.streams.members else ())
    if not group.members:
        return {}
    if group.protocol_type != PROTOCOL_TYPE or not group.protocol:
        return None
    subscriptions = dict.fromkeys(metadata(group, member) for member in group.members.values())
    if sum(len(data) for data in subscriptions) > state.limits.offsets.subscriptions_bytes_max:
        return None
    found: dict[str, None] = {}
    is_limited = state.level >= SUBSCRIBED_TOPICS_LEVEL
    names_left = state.limits.offsets.subscriptions_names_max if is_limited else NAMES_UNLIMITED
    try:
        for data in subscriptions:
            topics = read_topics(data, names_left)
            names_left -= len(topics)
            found |= dict.fromkeys(topics)
    except Malformed:
        return None
    return found


def _is_read(read_now: _ReadNow, topic: str) -> bool:
    """Whether members may read the topic."""
    return read_now is None or topic in read_now


def _subscribed(state: State, group_id: str, consumer: ConsumerGroup) -> dict[str, None]:
    """The members' topics, by name and by pattern."""
    found = dict.fromkeys(name for member in consumer.members.values() for name in member.topics)
    for pattern in dict.fromkeys(member.pattern for member in consumer.members.values() if member.pattern):
        found |= state.subscriptions.patterns[pattern].topics
    return found
