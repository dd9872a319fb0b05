"""Heartbeats of share groups' members: join, stay, leave (KIP-932).

As with consumer groups, `preview` answers heartbeats that change nothing, so that only the other ones are journaled. A
heartbeat that would change something is STALE if its sender had not seen the member's last change.
"""

from penstock.contracts.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    SHARE_STARTS_MAX,
    Done,
    ExpireMember,
    Rejected,
    ShareHeartbeat,
    ShareMembership,
)
from penstock.contracts.levels import FIRST_SUBSCRIPTION_LEVEL, GROUP_SIZES_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.consumer_group import topic_partitions
from penstock_sequencer.core.groups.departed_members import departed_sequence
from penstock_sequencer.core.share.first_offsets import beginning
from penstock_sequencer.core.share.group import (
    enter_member,
    heartbeat_interval_ms,
    narrow_target,
    new_group,
    remove_member,
    renew_targets,
    subscribe,
    weigh,
)
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.group_sizes import is_room_for_group, is_room_for_member
from penstock_sequencer.core.state.limits import GroupLimits
from penstock_sequencer.core.state.share_group import ShareGroup, ShareMember
from penstock_sequencer.core.state.shares import enter, number_of


def share_heartbeat(state: State, command: ShareHeartbeat, changes: Changes) -> ShareMembership | Rejected:
    """The member joins, stays, or leaves."""
    answer = preview(state, command)
    if isinstance(answer, ShareMembership):
        # Only changes are journaled, so an earlier copy made the change; its answer and assignment may be lost.
        group = state.share_groups[command.group_id]
        return _membership(state, group, group.members[command.member_id], is_full=True)
    if answer is not None:
        return answer
    known = state.share_groups.get(command.group_id)
    member = None if known is None else known.members.get(command.member_id)
    late = _is_late(state, command, member)
    if command.member_epoch == LEAVE_EPOCH:
        if known is not None and member is not None and not late:
            remove_member(state, known, member, changes, unread=True)
        return ShareMembership(command.member_id, LEAVE_EPOCH, 0, None)
    if late:
        return Rejected(Rejection.STALE, "the member has changed or left since")
    group = known or new_group(state, command.group_id, enter(state, command.principal))
    return _continue(state, group, member, command)


def expire(state: State, group: ShareGroup, command: ExpireMember, changes: Changes) -> Done:
    """Remove a silent member, unless the journal shows that it was active; its records count as delivered."""
    member = group.members.get(command.member_id)
    if member is not None and member.active_sequence <= command.active_sequence:
        remove_member(state, group, member, changes, unread=False)
    return Done()


def preview(state: State, command: ShareHeartbeat) -> ShareMembership | Rejected | None:
    """The answer to a heartbeat that is rejected or changes nothing; None for one that must be journaled."""
    wrong = _wrong(command, state.limits.groups)
    if wrong:
        return Rejected(Rejection.INVALID_REQUEST, wrong)
    group = state.share_groups.get(command.group_id)
    if group is None:
        return _validation_error_to_new(state, command)
    member = group.members.get(command.member_id)
    if member is None:
        return _validation_error_to_member(state, group, command)
    if command.member_epoch == LEAVE_EPOCH:
        return None
    if command.member_epoch not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
        return _fenced(member, command)
    if _settings(command, member) != _settings(None, member):
        error = _subscription_validation_error(state, group, member, command)
        return error or _growth_validation_error(state, group, member, command)
    if member.target != member.assigned:
        return None
    is_full = command.member_epoch == JOIN_EPOCH or command.topics is not None or command.member_epoch != member.epoch
    return _membership(state, group, member, is_full=is_full)


def _wrong(command: ShareHeartbeat, limits: GroupLimits) -> str:
    """Kafka's checks with its texts and in its order, then the limits on sizes."""
    if not command.group_id or not command.member_id:
        return "GroupId can't be empty." if not command.group_id else "MemberId can't be empty."
    if command.rack_id == "":
        return "RackId can't be empty."
    if command.member_epoch == JOIN_EPOCH and command.topics is None:
        return "SubscribedTopicNames must be set in first request."
    if command.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if command.starts is not None and len(command.starts.offsets) > SHARE_STARTS_MAX:
        return f"first offsets of {len(command.starts.offsets)} partitions"
    names = (command.member_id, command.rack_id or "", command.client_id, command.client_host)
    length = sum(map(len, names))
    subscribed = sum(map(len, command.topics or ())) + len(command.topics or ())
    is_long = len(command.group_id) > limits.group_id_length_max or length > limits.member_names_length_max
    if is_long or subscribed > limits.member_bytes_max:
        return f"a member with names of {length} characters and a subscription of {subscribed}"
    return ""


def _validation_error_to_new(state: State, command: ShareHeartbeat) -> Rejected | None:
    """Why this heartbeat can make no share group."""
    if command.group_id in state.groups or command.group_id in state.transactions_by_group:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} is not a share group.")
    if command.member_epoch != JOIN_EPOCH:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} not found.")
    error = group_validation_error(state, command.principal) or _room_validation_error(state, None, command)
    if error is not None or state.level < FIRST_SUBSCRIPTION_LEVEL:
        return error
    return _subscription_validation_error(state, None, None, command)


def group_validation_error(state: State, principal: str) -> Rejected | None:
    """Why the principal can make no more groups."""
    is_room = is_room_for_group(state, number_of(state, principal), with_share_groups=True)
    return None if is_room else Rejected(Rejection.OVERLOADED, "no room for another group")


def _validation_error_to_member(state: State, group: ShareGroup, command: ShareHeartbeat) -> Rejected | None:
    if command.member_epoch != JOIN_EPOCH:
        message = f"Member {command.member_id} is not a member of the group."
        return Rejected(Rejection.UNKNOWN_MEMBER, message)
    members_max = state.limits.share.share_members_max
    if len(group.members) >= members_max:
        message = f"The share group has reached its maximum capacity of {members_max} members."
        return Rejected(Rejection.GROUP_FULL, message)
    return _subscription_validation_error(state, group, None, command) or _room_validation_error(state, group, command)


def _room_validation_error(state: State, group: ShareGroup | None, command: ShareHeartbeat) -> Rejected | None:
    members = () if group is None else group.members.values()
    owner = number_of(state, command.principal)
    is_room = is_room_for_member(state, members, state.limits.groups.member_bytes_max, 0, owner)
    return None if is_room else Rejected(Rejection.OVERLOADED, "no room for another member")


def _growth_validation_error(
    state: State, group: ShareGroup, member: ShareMember, command: ShareHeartbeat
) -> Rejected | None:
    topics = member.topics if command.topics is None else command.topics
    before_bytes = sum(map(len, member.topics))
    is_room = is_room_for_member(state, group.members.values(), sum(map(len, topics)), before_bytes, member.owner)
    if state.level < GROUP_SIZES_LEVEL or is_room:
        return None
    return Rejected(Rejection.OVERLOADED, "no room for a larger subscription")


def _subscription_validation_error(
    state: State, group: ShareGroup | None, known: ShareMember | None, command: ShareHeartbeat
) -> Rejected | None:
    """Why the group's subscriptions would be too many; a member may always subscribe fewer topics than before."""
    before = 0 if known is None else len(known.topics)
    growth = len(set(command.topics or ())) - before
    subscriptions_max = state.limits.share.share_subscriptions_max
    members = () if group is None else group.members.values()
    if growth <= 0 or sum(len(each.topics) for each in members) + growth <= subscriptions_max:
        return None
    message = f"The members of the share group subscribe {subscriptions_max} topics in all, which is the maximum."
    return Rejected(Rejection.GROUP_FULL, message)


def _fenced(member: ShareMember, command: ShareHeartbeat) -> Rejected:
    than = "greater" if command.member_epoch > member.epoch else "smaller"
    message = (
        f"The share group member has a {than} member epoch ({command.member_epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    return Rejected(Rejection.FENCED_MEMBER_EPOCH, message)


def _is_late(state: State, command: ShareHeartbeat, member: ShareMember | None) -> bool:
    """Whether the member has changed since by an entry that the sender had not seen."""
    changed = (
        departed_sequence(state, command.group_id, command.member_id) if member is None else member.changed_sequence
    )
    return 0 <= command.seen_sequence < changed


def _settings(command: ShareHeartbeat | None, member: ShareMember) -> tuple[list[str], str | None]:
    """The member's topics and rack so far, with those that the command changes."""
    if command is None:
        return member.topics, member.rack_id
    topics = member.topics if command.topics is None else sorted(dict.fromkeys(command.topics))
    return topics, member.rack_id if command.rack_id is None else command.rack_id


def _continue(state: State, group: ShareGroup, known: ShareMember | None, command: ShareHeartbeat) -> ShareMembership:
    """Add or update the member by the command, and answer with its target."""
    where = beginning(state, group.group_id, command.now_ms, command.starts)
    if known is None:
        topics = sorted(dict.fromkeys(command.topics or ()))
        names = (command.member_id, command.rack_id, command.client_id, command.client_host)
        member = ShareMember(*names, topics, state.sequence, owner=enter(state, command.principal))
        enter_member(state, group, member)
        renew_targets(state, group, topics, where)
    else:
        member = known
        topics, member.rack_id = _settings(command, member)
        member.client_id, member.client_host = command.client_id, command.client_host
        if topics != member.topics:
            subscribe(state, group, member, topics)
            renew_targets(state, group, topics, where)
            if group.target_due_ms:
                narrow_target(state, member)
    is_full = command.topics is not None or member.assigned != member.target or command.member_epoch != member.epoch
    member.previous_epoch, member.epoch = member.epoch, group.assignment_epoch
    member.assigned = member.target
    member.active_sequence = member.changed_sequence = state.sequence
    weigh(state, member)
    return _membership(state, group, member, is_full=is_full)


def _membership(state: State, group: ShareGroup, member: ShareMember, *, is_full: bool) -> ShareMembership:
    interval_ms = heartbeat_interval_ms(state, group)
    assignment = topic_partitions(member.assigned) if is_full else None
    return ShareMembership(member.member_id, member.epoch, interval_ms, assignment)
