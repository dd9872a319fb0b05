"""Offset commits of groups: Kafka's rules on which member may commit, and one rule of Penstock.

A command may be journaled long after its sender turned to another replica and committed again: a replica that is in
doubt about an append repeats it for seconds. So a sender that replaces an offset must have known the old one. The
command carries the newest entry that its sender had seen when the client asked (`seen_sequence`). Otherwise the offset
is STALE. No client repeats a commit that was late. A client that asked just now, through a gateway that was behind,
asks again.
"""

from penstock.contracts.commands import CommitOffsets, CommitTxnOffsets, OffsetToCommit, PerItem, Rejected
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import LATE_COMMANDS_LEVEL, OFFSET_EXPIRY_LEVEL, OFFSET_TOPIC_IDS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.classic_group import check_member, new_group
from penstock_sequencer.core.groups.consumer_group import commit_rejection
from penstock_sequencer.core.groups.streams import commits as streams_commits
from penstock_sequencer.core.groups.timers import record_idle
from penstock_sequencer.core.state.cluster import COMPLETING, EMPTY, NOT_NAMED, Changes, Committed, Group, State
from penstock_sequencer.core.state.group_sizes import is_room_for_group, is_room_for_offset
from penstock_sequencer.core.state.limits import OFFSET_OVERHEAD_BYTES
from penstock_sequencer.core.state.shares import enter, number_of


def commit_offsets(state: State, command: CommitOffsets, changes: Changes) -> PerItem | Rejected:
    """Store the group's offsets; one rejection for each partition that does not exist."""
    rejection = _rejection(state, command)
    if rejection:
        return Rejected(rejection)
    group = state.groups.get(command.group_id)
    if group is None:
        group = new_group(state, command.group_id, enter(state, command.principal))
    record_life(state, group, command.member_id)
    rejections = [
        offset_rejection(state, item, command.topic_ids) or _commit(state, group, item, command.seen_sequence)
        for item in command.offsets
    ]
    record_idle(state, group)
    return PerItem(rejections)


def preview_commit(state: State, command: CommitOffsets) -> PerItem | Rejected | None:
    """The outcome of `commit_offsets` if it would store no offset; None if it may store one."""
    rejection = _rejection(state, command)
    return Rejected(rejection) if rejection else preview_offsets(state, command)


def preview_offsets(state: State, command: CommitOffsets | CommitTxnOffsets) -> PerItem | None:
    """The rejections if none of the offsets can be stored for any group."""
    rejections = [offset_rejection(state, item, command.topic_ids) for item in command.offsets]
    return PerItem(rejections) if rejections and all(rejections) else None


def _rejection(state: State, command: CommitOffsets) -> Rejection:
    group = state.groups.get(command.group_id)
    return _rejection_without_group(state, command) if group is None else member_rejection(group, command)


def offset_rejection(state: State, item: OffsetToCommit, topic_ids: dict[str, TopicId]) -> Rejection:
    """Why no group can store the offset."""
    topic = state.topics.get(item.topic)
    if topic is None or not 0 <= item.partition < len(topic.partitions):
        return Rejection.UNKNOWN_TOPIC
    if state.level >= OFFSET_TOPIC_IDS_LEVEL and topic_ids.get(item.topic, topic.topic_id) != topic.topic_id:
        return Rejection.UNKNOWN_TOPIC
    is_long = len(item.metadata.encode()) > state.limits.offsets.offset_metadata_bytes_max
    return Rejection.METADATA_TOO_LARGE if is_long else Rejection.NONE


def record_life(state: State, group: Group, member_id: str) -> None:
    """Record a commit as activity of its member, if it names one."""
    if group.streams is not None:
        worker = group.streams.members.get(member_id)
        if worker is not None:
            worker.active_sequence = state.sequence
        return
    members = group.members if group.consumer is None else group.consumer.members
    if member_id in members:
        members[member_id].active_sequence = state.sequence


def _rejection_without_group(state: State, command: CommitOffsets) -> Rejection:
    """Whether the group may be made: groups without members keep offsets for clients that assign partitions by hand."""
    if command.group_id in state.share_groups:
        return Rejection.UNKNOWN_GROUP
    if command.generation >= 0:
        return Rejection.UNKNOWN_GROUP if state.level >= OFFSET_EXPIRY_LEVEL else Rejection.ILLEGAL_GENERATION
    limits = state.limits.groups
    if len(command.group_id) > limits.group_id_length_max:
        return Rejection.INVALID_GROUP
    is_room = is_room_for_group(state, number_of(state, command.principal))
    return Rejection.NONE if is_room else Rejection.OVERLOADED


def member_rejection(group: Group, command: CommitOffsets | CommitTxnOffsets) -> Rejection:
    """Why the sender may not commit offsets of the group now."""
    if group.consumer is not None:
        return commit_rejection(group.consumer, command.generation, command.member_id, command.group_instance_id)
    if group.streams is not None:
        partitions = ((each.topic, each.partition) for each in command.offsets)
        is_transactional = isinstance(command, CommitTxnOffsets)
        return streams_commits.commit_rejection(
            group.streams, command.generation, command.member_id, partitions, is_transactional=is_transactional
        )
    if command.generation < 0 and group.state == EMPTY:
        return Rejection.NONE
    if command.generation < 0 and not command.member_id and command.group_instance_id is None:
        return Rejection.UNKNOWN_MEMBER
    rejection = check_member(group, command.member_id, command.group_instance_id)
    if rejection:
        return rejection
    if command.generation != group.generation:
        return Rejection.ILLEGAL_GENERATION
    # In PreparingRebalance a commit is accepted; the answer to the member's next heartbeat makes it join again.
    return Rejection.REBALANCE_IN_PROGRESS if group.state == COMPLETING else Rejection.NONE


def _commit(state: State, group: Group, item: OffsetToCommit, seen_sequence: int) -> Rejection:
    before = group.offsets.get(item.topic, {}).get(item.partition)
    if 0 <= seen_sequence < _newest_known(state, before) and (before is None or before.offset != item.offset):
        return Rejection.STALE
    sequence = state.sequence if state.level >= LATE_COMMANDS_LEVEL else 0
    committed = Committed(item.offset, item.leader_epoch, item.metadata, sequence)
    growth_bytes = size_bytes(committed) - (0 if before is None else size_bytes(before))
    if not is_room_for_offset(state, growth_bytes):
        return Rejection.OVERLOADED
    state.group_bytes += growth_bytes
    group.offsets.setdefault(item.topic, {})[item.partition] = committed
    return Rejection.NONE


def _newest_known(state: State, before: Committed | None) -> int:
    """The entry that the sender must have seen: of the stored offset, or else of the last removal of any offset."""
    return state.removed_sequence if before is None else before.sequence


def size_bytes(committed: Committed) -> int:
    """The offset's part of `State.group_bytes`."""
    return OFFSET_OVERHEAD_BYTES + len(committed.metadata)


def remove_offsets(state: State, group: Group, topic: str) -> None:
    """Remove the group's offsets in the topic."""
    release_offsets(state, take_offsets(state, group, topic))


def take_offsets(state: State, group: Group, topic: str) -> dict[int, Committed]:
    """Take the group's offsets in the topic; their size counts until `release_offsets`."""
    taken = group.offsets.pop(topic, {})
    if state.level >= LATE_COMMANDS_LEVEL:
        state.removed_sequence = state.sequence
    record_idle(state, group)
    return taken


def put_back_offsets(state: State, group_id: str, topic: str, offsets: dict[int, Committed]) -> None:
    """Put taken offsets back; a group that was removed since is made again, within the limit of groups."""
    group = state.groups.get(group_id)
    if group is None and (len(state.groups) >= state.limits.groups.groups_max or group_id in state.share_groups):
        release_offsets(state, offsets)
        return
    group = group or new_group(state, group_id, NOT_NAMED)
    group.offsets[topic] = offsets


def release_offsets(state: State, offsets: dict[int, Committed]) -> None:
    """Subtract the size of offsets that are removed."""
    state.group_bytes -= sum(size_bytes(committed) for committed in offsets.values())


def remove_recoverable_offsets(state: State, group_id: str) -> None:
    """Remove a deleted group's offsets from recoverable topics, so that undeleting them restores no group."""
    for recoverable in state.recoverable.values():
        release_offsets(state, recoverable.offsets.pop(group_id, {}))


def has_newer_offsets(group: Group, seen_sequence: int) -> bool:
    """Whether the group has committed offsets after this entry; False for -1."""
    return seen_sequence >= 0 and any(
        committed.sequence > seen_sequence for topic in group.offsets.values() for committed in topic.values()
    )
