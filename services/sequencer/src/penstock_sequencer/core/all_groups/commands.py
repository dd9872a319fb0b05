"""Commands and events for groups of every kind: deadlines, silent members, deleted groups, topics that change."""

from penstock.contracts.commands import DeleteGroup, Done, ExpireMember, Rejected
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups import classic_group, classic_leave
from penstock_sequencer.core.groups.assignment import subscriptions
from penstock_sequencer.core.groups.consumer_group import bump_epoch, consumer_of, remove_members, settle
from penstock_sequencer.core.groups.migration import downgrade_if_due
from penstock_sequencer.core.groups.offset_commit import has_newer_offsets, remove_offsets, remove_recoverable_offsets
from penstock_sequencer.core.groups.streams import group as streams_groups
from penstock_sequencer.core.groups.timers import next_deadline_ms, set_deadline
from penstock_sequencer.core.share import commands as share_commands, group as share_groups, offsets as share_offsets
from penstock_sequencer.core.state.cluster import EMPTY, Changes, Group, State
from penstock_sequencer.core.state.group_sizes import remove_topology
from penstock_sequencer.core.state.shares import count_group


def expire_member(state: State, command: ExpireMember, changes: Changes) -> Done:
    """Remove a silent member, unless the journal shows that it was active, or it waits for an answer."""
    shared = state.share_groups.get(command.group_id)
    if shared is not None:
        return share_commands.expire(state, shared, command, changes)
    group = state.groups.get(command.group_id)
    if group is None:
        return Done()
    if group.consumer is not None:
        return _expire_consumer(state, group, command, changes)
    if group.streams is not None:
        return _expire_streams(state, group, command, changes)
    return classic_leave.expire(state, group, command, changes)


def delete_group(state: State, command: DeleteGroup, changes: Changes) -> Done | Rejected:
    """Delete an empty group and its offsets."""
    shared = state.share_groups.get(command.group_id)
    if shared is not None:
        return share_offsets.delete_share_group(state, shared, command, changes)
    group = state.groups.get(command.group_id)
    if group is None:
        return Rejected(Rejection.UNKNOWN_GROUP)
    if group.state != EMPTY:
        return Rejected(Rejection.GROUP_NOT_EMPTY)
    if has_newer_offsets(group, command.seen_sequence):
        return Rejected(Rejection.STALE, "the group has committed offsets since")
    remove_topology(state, group)
    count_group(state, group.owner, -1)
    del state.groups[command.group_id]
    for topic in list(group.offsets):
        remove_offsets(state, group, topic)
    remove_recoverable_offsets(state, command.group_id)
    state.idle_groups.pop(command.group_id, None)
    set_deadline(state, command.group_id, 0)
    changes.groups[command.group_id] = None
    return Done()


def change_topic(state: State, name: str, changes: Changes, *, is_new: bool = False) -> None:
    """Assign partitions anew in groups that subscribe a topic that came (`is_new`), went or grew."""
    # Sorted: after a snapshot the table has another order, and the first group gets the last free partitions.
    for group_id in sorted(subscriptions.record_topic(state, name, is_new=is_new)):
        if group_id in state.share_groups:
            share_groups.renew_targets(state, state.share_groups[group_id], [name])
            continue
        group = state.groups[group_id]
        if group.streams is not None:
            streams_groups.change_topics(group)
            streams_groups.settle(state, group, changes)
            continue
        bump_epoch(state, group)
        settle(state, group, changes)


def fire_deadlines(state: State, changes: Changes) -> None:
    """Do what is due by the machine's clock. Every new deadline is in the future, so this loop ends."""
    while (deadline_ms := next_deadline_ms(state)) is not None and deadline_ms <= state.clock_ms:
        group_id = state.alarms[0][1]
        if group_id in state.share_groups:
            share_groups.fire(state, state.share_groups[group_id], changes)
            continue
        group = state.groups[group_id]
        if group.streams is not None:
            members = group.streams.members.values()
            overdue = [member.member_id for member in members if 0 < member.due_ms <= state.clock_ms]
            _remove_from_streams(state, group, overdue, changes)
        elif group.consumer is None:
            classic_group.fire(state, group)
            classic_group.settle(state, group, changes)
        else:
            _drop_overdue(state, group, changes)


def _drop_overdue(state: State, group: Group, changes: Changes) -> None:
    """Remove members that missed their deadline."""
    members = list(consumer_of(group).members.values())
    _remove(state, group, [member.member_id for member in members if 0 < member.due_ms <= state.clock_ms], changes)


def _expire_consumer(state: State, group: Group, command: ExpireMember, changes: Changes) -> Done:
    """Remove a silent member of a consumer group, unless the journal shows that it was active."""
    member = consumer_of(group).members.get(command.member_id)
    if member is not None and member.active_sequence <= command.active_sequence:
        _remove(state, group, [member.member_id], changes)
    return Done()


def _remove(state: State, group: Group, member_ids: list[str], changes: Changes) -> None:
    members = consumer_of(group).members
    remove_members(state, group, [members[member_id] for member_id in member_ids])
    downgrade_if_due(state, group, changes)
    if group.consumer is not None:
        settle(state, group, changes)


def _expire_streams(state: State, group: Group, command: ExpireMember, changes: Changes) -> Done:
    """Remove a silent member of a streams group, unless the journal shows that it was active."""
    member = streams_groups.streams_of(group).members.get(command.member_id)
    if member is not None and member.active_sequence <= command.active_sequence:
        _remove_from_streams(state, group, [member.member_id], changes)
    return Done()


def _remove_from_streams(state: State, group: Group, member_ids: list[str], changes: Changes) -> None:
    streams = streams_groups.streams_of(group)
    for member_id in member_ids:
        streams_groups.remove_member(state, group, streams.members[member_id])
    streams_groups.settle(state, group, changes)
