"""Commands of members of classic groups (join and sync), answered as Kafka's GroupCoordinator answers them."""

import msgspec

from penstock.contracts.commands import (
    Joined,
    JoinGroup,
    MemberIdRequired,
    Rejected,
    Synced,
    SyncGroup,
    Waiting,
)
from penstock.contracts.commands.group_sizes import member_size_error
from penstock.contracts.configs.members import GROUP_SIZE_MAX, SESSION_TIMEOUT_MAX, SESSION_TIMEOUT_MIN, group_config
from penstock.contracts.levels import KEPT_TOPOLOGIES_LEVEL, LATE_COMMANDS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups import classic_members
from penstock_sequencer.core.groups.classic_group import (
    add_member,
    check_member,
    count_protocols,
    joined,
    new_group,
    place_static,
    prepare_rebalance,
    select_protocol,
    settle,
    supports,
    synced,
    weigh,
)
from penstock_sequencer.core.groups.migration import leave_new_protocol
from penstock_sequencer.core.state.cluster import COMPLETING, PREPARING, STABLE, Changes, Group, Member, State
from penstock_sequencer.core.state.group_sizes import (
    is_room_for_group,
    is_room_for_member,
    members_of,
    names_bytes,
    remove_topology,
)
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES, REBALANCE_TIMEOUT_MAX_MS
from penstock_sequencer.core.state.shares import enter, number_of

JoinOutcome = Joined | Waiting | MemberIdRequired | Rejected


def join_group(state: State, command: JoinGroup, changes: Changes) -> JoinOutcome:
    """A member joins for the first time, or joins again."""
    validation_error = _join_validation_error(state, command)
    if validation_error is not None:
        return validation_error
    group = state.groups.get(command.group_id)
    if group is None:
        group = new_group(state, command.group_id, enter(state, command.principal))
    if group.consumer is not None and group.consumer.members:
        return classic_members.join(state, group, command, changes)
    if group.consumer is not None or group.streams is not None:
        rejection = _join_rejection(group, command)
        if rejection and state.level >= KEPT_TOPOLOGIES_LEVEL:
            return Rejected(rejection)
        _leave_other_kind(state, group)
    outcome = _join(state, group, command)
    settle(state, group, changes)
    return outcome


def _leave_other_kind(state: State, group: Group) -> None:
    """Make an empty consumer or streams group a classic one."""
    if group.consumer is not None:
        leave_new_protocol(state, group)
    elif state.level >= KEPT_TOPOLOGIES_LEVEL:
        group.protocol_type = ""  # as in Kafka, until its first member has joined
    remove_topology(state, group)


def _join_validation_error(state: State, command: JoinGroup) -> Rejected | None:
    """Validate the request itself, and whether a group can be made for it."""
    if not 0 < len(command.group_id) <= state.limits.groups.group_id_length_max:
        return Rejected(Rejection.INVALID_GROUP, f"a group id of {len(command.group_id)} letters")
    if command.group_id in state.share_groups:
        return Rejected(Rejection.INCONSISTENT_PROTOCOL, "a share group has the id")
    known = state.groups.get(command.group_id)
    if known is not None and known.streams is not None and known.streams.members:
        return Rejected(Rejection.INCONSISTENT_PROTOCOL, "a streams group has the id")
    least_ms = int(state.cluster_configs.get(SESSION_TIMEOUT_MIN, state.limits.groups.session_timeout_min_ms))
    most_ms = group_config(SESSION_TIMEOUT_MAX, state.cluster_configs)
    if not least_ms <= command.session_timeout_ms <= most_ms:
        limits = f"must be from {least_ms} to {most_ms} ms"
        return Rejected(Rejection.INVALID_SESSION_TIMEOUT, f"session time-out {limits}: {command.session_timeout_ms}")
    validation_error = _size_validation_error(state, command)
    if validation_error is not None or command.group_id in state.groups:
        return validation_error
    if command.member_id:
        return Rejected(Rejection.UNKNOWN_MEMBER)
    if not command.protocol_type or not command.protocols:
        return Rejected(Rejection.INCONSISTENT_PROTOCOL)
    is_room = is_room_for_group(state, number_of(state, command.principal))
    return None if is_room else Rejected(Rejection.OVERLOADED, "no room for another group")


def _size_validation_error(state: State, command: JoinGroup) -> Rejected | None:
    limits = state.limits.groups
    validation_error = member_size_error(command, limits)
    if validation_error is not None:
        return validation_error
    if not (command.member_id or command.new_member_id):
        return Rejected(Rejection.INVALID_REQUEST, "a member without an id")
    size_bytes = sum(len(protocol.name) + len(protocol.metadata) for protocol in command.protocols)
    group = state.groups.get(command.group_id)
    before_bytes = _size_before(group, command)
    names = (command.member_id or command.new_member_id, command.group_instance_id)
    size_bytes += MEMBER_OVERHEAD_BYTES + names_bytes(state, *names, command.client_id, command.client_host)
    owner = number_of(state, command.principal)
    if is_room_for_member(state, members_of(group), size_bytes, before_bytes, owner):
        return None
    return Rejected(Rejection.OVERLOADED, "no room for another member")


def _size_before(group: Group | None, command: JoinGroup) -> int:
    """The present size of the member that joins again, without its assignment; 0 if it is new."""
    if group is None:
        return 0
    instance_id, member_id = command.group_instance_id or "", command.member_id or command.new_member_id
    if group.consumer is not None:
        upgraded = group.consumer.members.get(group.consumer.static_members.get(instance_id, member_id))
        return 0 if upgraded is None else upgraded.size_bytes
    member = group.members.get(group.static_members.get(instance_id, member_id))
    return 0 if member is None else member.size_bytes - len(member.assignment)


def preview_join(state: State, command: JoinGroup) -> Rejected | None:
    """The rejection that `join_group` would answer now; None if it may accept the command."""
    validation_error = _join_validation_error(state, command)
    group = state.groups.get(command.group_id)
    if validation_error is not None or group is None or group.consumer is not None:
        return validation_error
    rejection = _join_rejection(group, command)
    return Rejected(rejection) if rejection else None


def _join_rejection(group: Group, command: JoinGroup) -> Rejection:
    if not supports(group, command.protocol_type, command.protocols):
        return Rejection.INCONSISTENT_PROTOCOL
    if not command.member_id or _is_pending(group, command):
        return Rejection.NONE
    return check_member(group, command.member_id, command.group_instance_id)


def _is_pending(group: Group, command: JoinGroup) -> bool:
    return command.member_id in group.pending and command.group_instance_id is None


def _join(state: State, group: Group, command: JoinGroup) -> JoinOutcome:
    rejection = _join_rejection(group, command)
    if rejection:
        return Rejected(rejection)
    if not command.member_id and command.group_instance_id is not None:
        return _join_static(state, group, command, command.group_instance_id)
    if not command.member_id:
        return _join_new(state, group, command)
    if _is_pending(group, command):
        if _is_full(state, group):
            return Rejected(Rejection.GROUP_FULL)
        del group.pending[command.member_id]
        return _add(state, group, command, command.member_id)
    return _rejoin(state, group, group.members[command.member_id], command)


def _is_full(state: State, group: Group) -> bool:
    return len(group.members) >= group_config(GROUP_SIZE_MAX, state.cluster_configs)


def _join_new(state: State, group: Group, command: JoinGroup) -> JoinOutcome:
    """A client without a member id joins. The same command, sent again, changes nothing."""
    member_id = command.new_member_id
    if command.require_known_member:
        if member_id not in group.pending and member_id not in group.members:
            if _is_full(state, group) or len(group.pending) >= state.limits.groups.group_pending_max:
                return Rejected(Rejection.GROUP_FULL)
            group.pending[member_id] = state.clock_ms + command.session_timeout_ms
        return MemberIdRequired(member_id)
    if member_id in group.members:
        return _answer(group, group.members[member_id])
    if _is_full(state, group):
        return Rejected(Rejection.GROUP_FULL)
    group.pending.pop(member_id, None)
    return _add(state, group, command, member_id)


def _add(state: State, group: Group, command: JoinGroup, member_id: str) -> JoinOutcome:
    member = Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(command),
        protocols=command.protocols,
        active_sequence=state.sequence,
        owner=enter(state, command.principal),
    )
    add_member(state, group, member, command.protocol_type)
    return _answer(group, member)


def _rebalance_timeout_ms(command: JoinGroup) -> int:
    return max(1, min(command.rebalance_timeout_ms, REBALANCE_TIMEOUT_MAX_MS))


def _answer(group: Group, member: Member) -> Joined | Waiting:
    return Waiting(member.member_id, group.generation) if member.joining else joined(group, member)


def _rejoin(state: State, group: Group, member: Member, command: JoinGroup) -> Joined | Waiting:
    """A member joins again. Unchanged metadata starts no rebalance, unless the leader of a Stable group joins again."""
    unchanged = member.protocols == command.protocols
    _update(state, group, member, command)
    if unchanged and (group.state == COMPLETING or (group.state == STABLE and group.leader != member.member_id)):
        return joined(group, member)
    member.joining = True
    prepare_rebalance(state, group)
    return _answer(group, member)


def _update(state: State, group: Group, member: Member, command: JoinGroup) -> None:
    count_protocols(group, member, -1)
    member.protocols = command.protocols
    count_protocols(group, member, 1)
    weigh(state, member)
    member.client_id = command.client_id
    member.client_host = command.client_host
    member.session_timeout_ms = command.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(command)
    member.active_sequence = state.sequence


def _join_static(state: State, group: Group, command: JoinGroup, instance_id: str) -> JoinOutcome:
    """A client with a known instance id replaces the member that had it (KIP-345)."""
    old_member_id = group.static_members.get(instance_id)
    if old_member_id is None:
        if _is_full(state, group) or command.new_member_id in group.members:
            return Rejected(Rejection.GROUP_FULL)
        group.pending.pop(command.new_member_id, None)
        return _add(state, group, command, command.new_member_id)
    if command.new_member_id != old_member_id and command.new_member_id in group.members:
        return Rejected(Rejection.INVALID_REQUEST, "the member id belongs to another member")
    if command.new_member_id in group.fenced and state.level >= LATE_COMMANDS_LEVEL:
        # Each request has a member id of its own. So this request is late: its client has joined again since.
        return Rejected(Rejection.FENCED_INSTANCE)
    if command.new_member_id != old_member_id and has_come_since(group, instance_id, command.seen_sequence):
        return Rejected(Rejection.STALE, "another member has come with the instance id since")
    member = _replace(state, group, old_member_id, command.new_member_id)
    _update(state, group, member, command)
    if group.state == STABLE and select_protocol(group) == group.protocol:
        # KIP-814: the answer lists the members to a leader that came back, but it has nothing to assign.
        return msgspec.structs.replace(joined(group, member), skip_assignment=group.leader == member.member_id)
    member.joining = True
    prepare_rebalance(state, group)
    return _answer(group, member)


def has_come_since(group: Group, instance_id: str, seen_sequence: int) -> bool:
    """Whether the instance id's member joined by an entry that the sender had not seen; False for sequence -1."""
    return 0 <= seen_sequence < group.static_since.get(instance_id, 0)


def _replace(state: State, group: Group, old_member_id: str, new_member_id: str) -> Member:
    """The static member continues under another member id; the client with the old one is fenced."""
    member = group.members[old_member_id]
    if new_member_id == old_member_id:
        return member
    del group.members[old_member_id]
    group.members[new_member_id] = member
    member.member_id = new_member_id
    member.joining = False
    if member.group_instance_id is not None:
        place_static(state, group, member.group_instance_id, new_member_id)
    if group.leader == old_member_id:
        group.leader = new_member_id
    group.fenced.pop(new_member_id, None)
    group.fenced[old_member_id] = None
    if len(group.fenced) > state.limits.groups.group_fenced_max:
        del group.fenced[next(iter(group.fenced))]
    return member


def sync_group(state: State, command: SyncGroup, changes: Changes) -> Synced | Waiting | Rejected:
    """A member asks for its assignment; the leader's command brings all of them."""
    rejected = preview_sync(state, command)
    if rejected is not None:
        return rejected
    group = state.groups[command.group_id]
    if group.consumer is not None:
        return classic_members.sync(state, group, command, changes)
    member = group.members[command.member_id]
    member.synced = True
    member.active_sequence = state.sequence
    if group.state == COMPLETING and group.leader == member.member_id:
        _assign(state, group, command)
    if all(each.synced for each in group.members.values()):
        group.sync_deadline_ms = 0
    settle(state, group, changes)
    return synced(group, member) if group.state == STABLE else Waiting(member.member_id, group.generation)


def preview_sync(state: State, command: SyncGroup) -> Rejected | None:
    """The rejection that `sync_group` would answer now; None if it would accept the command."""
    if not command.group_id:
        return Rejected(Rejection.INVALID_GROUP)
    group = state.groups.get(command.group_id)
    if group is None:
        return Rejected(Rejection.UNKNOWN_MEMBER)
    if group.consumer is not None:
        rejection = classic_members.sync_rejection(group, command)
    else:
        rejection = _sync_rejection(state, group, command)
    return Rejected(rejection) if rejection else None


def _sync_rejection(state: State, group: Group, command: SyncGroup) -> Rejection:
    rejection = check_member(group, command.member_id, command.group_instance_id)
    if rejection:
        return rejection
    if command.generation != group.generation:
        return Rejection.ILLEGAL_GENERATION
    if command.protocol_type is not None and command.protocol_type != group.protocol_type:
        return Rejection.INCONSISTENT_PROTOCOL
    if command.protocol is not None and command.protocol != group.protocol:
        return Rejection.INCONSISTENT_PROTOCOL
    if group.state == PREPARING:
        return Rejection.REBALANCE_IN_PROGRESS
    size_bytes = sum(len(each.assignment) for each in command.assignments)
    before_bytes = sum(len(each.assignment) for each in group.members.values())
    owner = group.members[command.member_id].owner
    is_room = is_room_for_member(state, group.members.values(), size_bytes, before_bytes, owner)
    return Rejection.NONE if is_room else Rejection.OVERLOADED


def _assign(state: State, group: Group, command: SyncGroup) -> None:
    """Store the leader's assignments; a member without one gets an empty one. Members that waited count as active."""
    assignments = {each.member_id: each.assignment for each in command.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        weigh(state, member)
        if member.synced:
            member.active_sequence = state.sequence
    group.state = STABLE
