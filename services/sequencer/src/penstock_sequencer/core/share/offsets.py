"""Positions of share groups: administrators read them, and change them in groups without members (KIP-932)."""

from penstock.contracts.commands import (
    SHARE_PARTITIONS_PER_COMMAND_MAX,
    AlterShareOffsets,
    DeleteGroup,
    DeleteShareOffsets,
    Done,
    PerItem,
    Rejected,
    ShareOffset,
)
from penstock.contracts.queries.share import ShareOffsetsQuery, ShareOffsetsView, ShareOffsetTopic, ShareOffsetView
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.share.commands import group_validation_error
from penstock_sequencer.core.share.group import enter_share, new_group, remove_group, remove_if_bare, remove_topic
from penstock_sequencer.core.share.offset_ranges import end_of
from penstock_sequencer.core.share.partition import Rules, gone_count, rules_of, visible_end
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.limits import INTEGER_MAX
from penstock_sequencer.core.state.pages import NUMBER_BYTES, page_of, text_bytes
from penstock_sequencer.core.state.share_group import ShareGroup, SharePartition
from penstock_sequencer.core.state.shares import enter

_VIEW_BYTES = 6 * NUMBER_BYTES + 16  # of one partition beside the topic's name: integers and the topic's id


def alter_share_offsets(state: State, command: AlterShareOffsets, changes: Changes) -> PerItem | Rejected:
    """Set the group's next offsets; its records in flight there are given up."""
    rejected = preview_alter(state, command)
    if rejected is not None:
        return rejected
    group = state.share_groups.get(command.group_id)
    if group is None:
        group = new_group(state, command.group_id, enter(state, command.principal))
    rejections = [_alter(state, group, each) for each in command.offsets]
    group.altered_sequence = state.sequence
    remove_if_bare(state, group)
    return PerItem(rejections)


def preview_alter(state: State, command: AlterShareOffsets) -> Rejected | None:
    """The rejection that `alter_share_offsets` would answer now; None if it would accept the command."""
    group = state.share_groups.get(command.group_id)
    validation_error = _validation_error_to_new(state, command) if group is None else _validation_error(group, command)
    if validation_error is None and len(command.offsets) > SHARE_PARTITIONS_PER_COMMAND_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.offsets)} offsets in one command")
    return validation_error


def delete_share_offsets(state: State, command: DeleteShareOffsets, changes: Changes) -> PerItem | Rejected:
    """Remove the group's positions in these topics; a group without any partitions left is removed."""
    rejected = preview_delete(state, command)
    if rejected is not None:
        return rejected
    group = state.share_groups[command.group_id]
    rejections: list[Rejection] = []
    for name in command.topics:
        topic = state.topics.get(name)
        rejections.append(Rejection.UNKNOWN_TOPIC if topic is None else Rejection.NONE)
        if topic is not None and topic.topic_id in group.partitions:
            remove_topic(state, group, topic.topic_id)
    group.altered_sequence = state.sequence
    remove_if_bare(state, group)
    return PerItem(rejections)


def preview_delete(state: State, command: DeleteShareOffsets) -> Rejected | None:
    """The rejection that `delete_share_offsets` would answer now; None if it would accept the command."""
    group = state.share_groups.get(command.group_id)
    return _unknown(command.group_id) if group is None else _validation_error(group, command)


def delete_share_group(state: State, group: ShareGroup, command: DeleteGroup, changes: Changes) -> Done | Rejected:
    """Delete a group without members, and its positions."""
    if group.members:
        return Rejected(Rejection.GROUP_NOT_EMPTY)
    if 0 <= command.seen_sequence < group.altered_sequence:
        return Rejected(Rejection.STALE, "the group's offsets have been changed since")
    remove_group(state, group)
    changes.groups[command.group_id] = None
    return Done()


def share_offsets(state: State, query: ShareOffsetsQuery) -> ShareOffsetsView:
    """The group's positions, and its lag in each partition; of all its topics in pages, if the sender can page."""
    group = state.share_groups.get(query.group_id)
    if group is None:
        return ShareOffsetsView(state.sequence, [], Rejection.UNKNOWN_GROUP)
    topics, is_more = (query.topics, False) if query.topics is not None else _page(state, group, query.after)
    rules = rules_of(state, group.group_id)
    views = [_view(state, group, rules, each.topic, number) for each in topics for number in each.partitions]
    return ShareOffsetsView(state.sequence, views, is_more=is_more)


def _page(state: State, group: ShareGroup, after: str | None) -> tuple[list[ShareOffsetTopic], bool]:
    """The existing topics that the group has begun to share, and whether there are more."""
    shared = {
        state.topics_by_id[topic_id].name: shares
        for topic_id, shares in group.partitions.items()
        if shares and topic_id in state.topics_by_id
    }
    names, is_more = page_of(
        shared, after, state.limits.answers, lambda name: len(shared[name]) * (text_bytes(name) + _VIEW_BYTES)
    )
    return [ShareOffsetTopic(name, sorted(shared[name])) for name in names], is_more


def _view(state: State, group: ShareGroup, rules: Rules, name: str, number: int) -> ShareOffsetView:
    topic = state.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        topic_id = b"" if topic is None else topic.topic_id
        return ShareOffsetView(name, topic_id, number, Rejection.UNKNOWN_TOPIC, -1, -1, -1)
    share = group.partitions.get(topic.topic_id, {}).get(number)
    if share is None:
        return ShareOffsetView(name, topic.topic_id, number, Rejection.NONE, -1, -1, -1)
    partition = topic.partitions[number]
    start = max(share.start, partition.log_start_offset)
    lag = _lag(share, partition, visible_end(rules, partition))
    return ShareOffsetView(name, topic.topic_id, number, Rejection.NONE, start, lag, state.leader_epoch)


def _lag(share: SharePartition, partition: Partition, end: int) -> int:
    """The number of offsets that are in flight, or were never acquired."""
    start = partition.log_start_offset
    return share.in_flight - gone_count(share, start) + max(end - max(end_of(share), start), 0)


def _validation_error_to_new(state: State, command: AlterShareOffsets) -> Rejected | None:
    if not 0 < len(command.group_id) <= state.limits.groups.group_id_length_max:
        return Rejected(Rejection.INVALID_GROUP, f"a group id of {len(command.group_id)} characters")
    if command.group_id in state.groups or command.group_id in state.transactions_by_group:
        return _unknown(command.group_id)
    return group_validation_error(state, command.principal)


def _validation_error(group: ShareGroup, command: AlterShareOffsets | DeleteShareOffsets) -> Rejected | None:
    if group.members:
        return Rejected(Rejection.GROUP_NOT_EMPTY, "The group is not empty.")
    if 0 <= command.seen_sequence < group.altered_sequence:
        return Rejected(Rejection.STALE, "the group's offsets have been changed since")
    return None


def _unknown(group_id: str) -> Rejected:
    return Rejected(Rejection.UNKNOWN_GROUP, f"Group {group_id[:256]} is not a share group.")


def _alter(state: State, group: ShareGroup, item: ShareOffset) -> Rejection:
    topic = state.topics.get(item.topic)
    if topic is None or not 0 <= item.partition < len(topic.partitions):
        return Rejection.UNKNOWN_TOPIC
    if not 0 <= item.offset <= INTEGER_MAX:
        return Rejection.OFFSET_OUT_OF_RANGE
    is_known = item.partition in group.partitions.get(topic.topic_id, {})
    if not is_known and state.share_partition_count >= state.limits.share.share_partitions_max:
        return Rejection.OVERLOADED
    enter_share(state, group, topic.partitions[item.partition], item.offset)
    return Rejection.NONE
