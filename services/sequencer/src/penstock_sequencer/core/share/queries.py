"""Queries of share groups: heartbeats, offsets that can be acquired, members, configurations (KIP-932)."""

from penstock.contracts.queries.groups import GroupConfigsQuery, GroupConfigsView
from penstock.contracts.queries.share import (
    WINDOWS_PER_PARTITION_MAX,
    ShareGroupsQuery,
    ShareGroupsView,
    ShareGroupView,
    ShareHeartbeatQuery,
    ShareHeartbeatView,
    ShareMemberView,
    SharePartitionRef,
    SharePartitionsQuery,
    SharePartitionsView,
    SharePartitionView,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.consumer_group import topic_partitions
from penstock_sequencer.core.log.partitions import find_partition
from penstock_sequencer.core.share import commands as share_commands
from penstock_sequencer.core.share.first_offsets import timed_beginnings
from penstock_sequencer.core.share.group import state_of
from penstock_sequencer.core.share.offset_ranges import end_of
from penstock_sequencer.core.share.partition import Rules, rules_of, visible_end, windows
from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.pages import page_of, text_bytes
from penstock_sequencer.core.state.share_group import ShareGroup, ShareMember

ASSIGNOR = "simple"  # Kafka's name of the assignor


def share_heartbeat(state: State, query: ShareHeartbeatQuery) -> ShareHeartbeatView:
    """The answer to a heartbeat that changes nothing; without an answer it must be journaled."""
    outcome = share_commands.preview(state, query.heartbeat)
    timestamp, begins = timed_beginnings(state, query.heartbeat) if outcome is None else (0, [])
    return ShareHeartbeatView(state.sequence, outcome, timestamp=timestamp, begins=begins)


def share_partitions(state: State, query: SharePartitionsQuery) -> SharePartitionsView:
    """The offsets that the member could acquire now."""
    group = state.share_groups.get(query.group_id)
    if group is None or query.member_id not in group.members:
        rejection = Rejection.UNKNOWN_GROUP if group is None else Rejection.UNKNOWN_MEMBER
        return SharePartitionsView(state.sequence, [], rejection=rejection)
    rules = rules_of(state, group.group_id)
    windows_left = state.limits.answers.share_windows_max
    views: list[SharePartitionView] = []
    for each in query.partitions:
        views.append(_partition_view(state, group, rules, each, min(windows_left, WINDOWS_PER_PARTITION_MAX)))
        windows_left -= len(views[-1].windows)
    return SharePartitionsView(state.sequence, views, rules.read_committed)


def _partition_view(
    state: State, group: ShareGroup, rules: Rules, ref: SharePartitionRef, windows_max: int
) -> SharePartitionView:
    partition = find_partition(state, ref.topic_id, ref.partition)
    if partition is None:
        return SharePartitionView(Rejection.UNKNOWN_TOPIC, -1, -1, -1, [])
    end = visible_end(rules, partition)
    share = group.partitions.get(ref.topic_id, {}).get(ref.partition)
    if share is None:
        return _unshared(partition, end)
    start = max(share.start, partition.log_start_offset)
    found = windows(state, rules, partition, share, windows_max)
    return SharePartitionView(Rejection.NONE, start, max(end_of(share), start), end, found)


def _unshared(partition: Partition, end: int) -> SharePartitionView:
    return SharePartitionView(Rejection.NONE, partition.high_watermark, partition.high_watermark, end, [])


def share_groups(state: State, query: ShareGroupsQuery) -> ShareGroupsView:
    """Each group with its members."""
    return ShareGroupsView(state.sequence, [_group_view(state, group_id) for group_id in query.group_ids])


def _group_view(state: State, group_id: str) -> ShareGroupView:
    group = state.share_groups.get(group_id)
    if group is None:
        return ShareGroupView(group_id, "", 0, 0, "", [], [])
    topic_ids = dict.fromkeys(topic_id for member in group.members.values() for topic_id in member.assigned)
    names = [(topic_id, state.topics_by_id[topic_id].name) for topic_id in topic_ids if topic_id in state.topics_by_id]
    members = [_member_view(member) for member in group.members.values()]
    return ShareGroupView(group_id, state_of(group), group.epoch, group.assignment_epoch, ASSIGNOR, members, names)


def _member_view(member: ShareMember) -> ShareMemberView:
    return ShareMemberView(
        member.member_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        member.topics,
        topic_partitions(member.assigned),
    )


def group_configs(state: State, query: GroupConfigsQuery) -> GroupConfigsView:
    """Each group's own configurations; without group ids, pages of the ids of all groups that have any."""
    if not query.group_ids:
        listed, is_more = page_of(sorted(state.group_configs), query.after, state.limits.answers, text_bytes)
        return GroupConfigsView(state.sequence, [], group_ids=listed, is_more=is_more)
    configs = [state.group_configs.get(each, {}) for each in query.group_ids]
    return GroupConfigsView(state.sequence, configs, group_ids=query.group_ids)
