"""Classic members leave their group, or are removed because they were silent."""

from penstock.contracts.commands import Done, ExpireMember, LeaveGroup, LeavingMember, PerItem, Rejected
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups import classic_members
from penstock_sequencer.core.groups.classic_commands import has_come_since
from penstock_sequencer.core.groups.classic_group import (
    check_member,
    complete_if_all_joined,
    is_waiting,
    remove_member,
    settle,
)
from penstock_sequencer.core.state.cluster import Changes, Group, State


def leave_group(state: State, command: LeaveGroup, changes: Changes) -> PerItem | Rejected:
    """Members leave; one rejection for each member that does not exist."""
    answer = preview_leave(state, command)
    if answer is not None:
        return answer
    group = state.groups[command.group_id]
    if group.consumer is not None:
        return classic_members.leave(state, group, command, changes)
    rejections = [_leave(state, group, leaving) for leaving in command.members]
    settle(state, group, changes)
    return PerItem(rejections)


def preview_leave(state: State, command: LeaveGroup) -> PerItem | Rejected | None:
    """The outcome of `leave_group` if no member would leave; None if one may leave."""
    if not command.group_id:
        return Rejected(Rejection.INVALID_GROUP)
    group = state.groups.get(command.group_id)
    if group is None:
        return PerItem([Rejection.UNKNOWN_MEMBER] * len(command.members))
    if group.consumer is not None:
        rejections = classic_members.leave_rejections(group, command)
    elif any(_names_another(group, leaving, command.seen_sequence) for leaving in command.members):
        return Rejected(Rejection.STALE, "another member has come with the instance id since")
    else:
        rejections = [_leave_rejection(group, leaving) for leaving in command.members]
    return PerItem(rejections) if all(rejections) else None


def _names_another(group: Group, leaving: LeavingMember, seen_sequence: int) -> bool:
    """Whether an instance id alone names a member that joined after the sender had looked."""
    instance_id = leaving.group_instance_id
    return not leaving.member_id and instance_id is not None and has_come_since(group, instance_id, seen_sequence)


def _leave(state: State, group: Group, leaving: LeavingMember) -> Rejection:
    """One member leaves."""
    rejection = _leave_rejection(group, leaving)
    if rejection:
        return rejection
    member_id = _leaving_id(group, leaving)
    if member_id in group.pending:
        _remove_pending(state, group, member_id)
    else:
        remove_member(state, group, member_id)
    return Rejection.NONE


def _leave_rejection(group: Group, leaving: LeavingMember) -> Rejection:
    member_id = _leaving_id(group, leaving)
    if member_id in group.pending:
        return Rejection.NONE
    return check_member(group, member_id, leaving.group_instance_id)


def _leaving_id(group: Group, leaving: LeavingMember) -> str:
    """The member id; an administrator gives only the instance id."""
    if leaving.member_id or leaving.group_instance_id is None:
        return leaving.member_id
    return group.static_members.get(leaving.group_instance_id, "")


def _remove_pending(state: State, group: Group, member_id: str) -> None:
    del group.pending[member_id]
    complete_if_all_joined(state, group)


def expire(state: State, group: Group, command: ExpireMember, changes: Changes) -> Done:
    """Remove a silent member, unless the journal shows that it was active, or it waits for an answer."""
    member = group.members.get(command.member_id)
    if command.member_id in group.pending:
        _remove_pending(state, group, command.member_id)
    elif member is None or member.active_sequence > command.active_sequence or is_waiting(group, member):
        return Done()
    else:
        remove_member(state, group, command.member_id)
    settle(state, group, changes)
    return Done()
