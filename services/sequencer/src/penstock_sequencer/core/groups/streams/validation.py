"""Why a heartbeat of a streams group's member is rejected: the request, the group, the member, its epoch (KIP-1071)."""

from penstock.contracts.commands import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    OwnedTasks,
    Rejected,
    StreamsHeartbeat,
    TaskIds,
)
from penstock.contracts.levels import TASK_OFFSETS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.streams.group import configured_of, streams_of
from penstock_sequencer.core.groups.streams.topology import topology_error
from penstock_sequencer.core.state.cluster import EMPTY, Group, State
from penstock_sequencer.core.state.consumer_group import AWAY
from penstock_sequencer.core.state.group_sizes import (
    is_room_for_group,
    is_room_for_member,
    is_room_for_offset,
    members_of,
    topology_bytes,
)
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES, Limits
from penstock_sequencer.core.state.shares import number_of
from penstock_sequencer.core.state.streams_group import OwnedActive, StreamsMember, Tasks

NOT_SET = -1  # a rebalance timeout that the heartbeat does not contain
_OTHER_INSTANCE = "the member has another instance id, or none"


def validation_error(state: State, command: StreamsHeartbeat) -> Rejected | None:
    """Validate the request itself."""
    wrong = _wrong(command) or _too_large(command, state.limits)
    if wrong:
        return Rejected(Rejection.INVALID_REQUEST, wrong)
    if command.topology is None:
        return None
    size_bytes = topology_bytes(command.topology, state.limits.streams.topology_item_bytes)
    if size_bytes > state.limits.streams.topology_bytes_max:
        return Rejected(Rejection.INVALID_TOPOLOGY, f"a topology of {size_bytes} bytes")
    if command.topology.epoch < 0:
        return Rejected(Rejection.INVALID_TOPOLOGY, "Topology epoch must be non-negative.")
    broken = topology_error(command.topology)
    return Rejected(Rejection.INVALID_TOPOLOGY, broken) if broken else None


def _wrong(command: StreamsHeartbeat) -> str:
    """Kafka's checks with its texts and in its order."""
    epoch, owned = command.member_epoch, command.owned
    if not command.group_id or not command.member_id:
        return "GroupId can't be empty." if command.member_id else "MemberId can't be empty."
    if command.instance_id == "" or command.rack_id == "":
        return "InstanceId can't be empty." if command.instance_id == "" else "RackId can't be empty."
    if epoch == JOIN_EPOCH and command.rebalance_timeout_ms == NOT_SET:
        return "RebalanceTimeoutMs must be provided in first request."
    if epoch == JOIN_EPOCH and owned is not None:
        for name, tasks in (("Active", owned.active), ("Standby", owned.standby), ("Warmup", owned.warmup)):
            if tasks:
                return f"{name}Tasks must be empty when (re-)joining."
    if epoch == JOIN_EPOCH and command.topology is None:
        return "Topology must be non-null when (re-)joining."
    if epoch == LEAVE_FOR_A_WHILE_EPOCH and command.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVE_FOR_A_WHILE_EPOCH:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if epoch != JOIN_EPOCH and command.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return ""


def _too_large(command: StreamsHeartbeat, limits: Limits) -> str:
    names = [command.member_id, command.instance_id or "", command.rack_id or "", command.client_id]
    names += [command.client_host, command.process_id or "", (command.endpoint or ("", 0))[0]]
    names += [text for pair in command.client_tags or () for text in pair]
    length, offsets = sum(map(len, names)), len(command.task_offsets or ()) + len(command.task_end_offsets or ())
    groups = limits.groups
    if len(command.group_id) > groups.group_id_length_max or length > groups.member_names_length_max:
        return f"a member with names of {length} characters"
    return f"a member with {offsets} offsets of tasks" if offsets > limits.streams.task_offsets_max else ""


def validation_error_to_new(state: State, group: Group | None, command: StreamsHeartbeat) -> Rejected | None:
    """Why this heartbeat can make no streams group."""
    if command.group_id in state.share_groups or (group is not None and not _is_convertible(group)):
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} is not a streams group.")
    if command.member_epoch != JOIN_EPOCH:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Streams group {command.group_id} not found.")
    if group is None and not is_room_for_group(state, number_of(state, command.principal)):
        return Rejected(Rejection.OVERLOADED, "no room for another group")
    assert command.topology is not None, "a member joins with a topology"
    if not is_room_for_offset(state, topology_bytes(command.topology, state.limits.streams.topology_item_bytes)):
        return Rejected(Rejection.OVERLOADED, "no room for another topology")
    return validation_error_to_member(state, group, command)


def _is_convertible(group: Group) -> bool:
    """Whether the group is an empty classic one."""
    return group.consumer is None and group.state == EMPTY and not group.members and not group.pending


def validation_error_to_member(state: State, group: Group | None, command: StreamsHeartbeat) -> Rejected | None:
    """Why no new member can join with this heartbeat."""
    members_max = state.limits.streams.streams_members_max
    if group is not None and group.streams is not None and len(group.streams.members) >= members_max:
        message = f"The streams group has reached its maximum capacity of {members_max} members."
        return Rejected(Rejection.GROUP_FULL, message)
    owner, size_bytes = number_of(state, command.principal), _size_bytes(state, command)
    if not is_room_for_member(state, members_of(group), size_bytes, 0, owner):
        return Rejected(Rejection.OVERLOADED, "no room for another member")
    return None


def growth_validation_error(
    state: State, group: Group, member: StreamsMember, command: StreamsHeartbeat
) -> Rejected | None:
    """Why the known member cannot have the settings of the heartbeat."""
    size_bytes = _size_bytes(state, command)
    if state.level >= TASK_OFFSETS_LEVEL:
        held = len(member.task_offsets) + len(member.task_end_offsets)
        offsets = _offsets_after(member, command)
        if offsets > max(held, state.limits.streams.task_offsets_max):
            return Rejected(Rejection.INVALID_REQUEST, f"a member with {offsets} offsets of tasks")
        reported = len(command.task_offsets or ()) + len(command.task_end_offsets or ())
        size_bytes += state.limits.streams.task_offset_bytes * (offsets - reported)
    if is_room_for_member(state, members_of(group), size_bytes, member.size_bytes, member.owner):
        return None
    return Rejected(Rejection.OVERLOADED, "no room for a larger member")


def _offsets_after(member: StreamsMember, command: StreamsHeartbeat) -> int:
    """How many offsets the member has after the heartbeat, which may leave out one or both kinds."""
    offsets = member.task_offsets if command.task_offsets is None else command.task_offsets
    end_offsets = member.task_end_offsets if command.task_end_offsets is None else command.task_end_offsets
    return len(offsets) + len(end_offsets)


def _size_bytes(state: State, command: StreamsHeartbeat) -> int:
    """The most that the settings of the heartbeat take."""
    offsets = len(command.task_offsets or ()) + len(command.task_end_offsets or ())
    names = state.limits.groups.member_names_length_max
    return MEMBER_OVERHEAD_BYTES + names + state.limits.streams.task_offset_bytes * offsets


def topology_rejection(state: State, group: Group, command: StreamsHeartbeat) -> Rejected | None:
    """Why the topology of the heartbeat is not that of the group; members with an older one may join."""
    known = streams_of(group).topology
    if command.topology is None or command.topology.epoch < known.epoch or command.topology == known:
        return None
    return Rejected(Rejection.INVALID_REQUEST, "Topology updates are not supported yet.")


def sender_rejection(group: Group, member: StreamsMember | None, command: StreamsHeartbeat) -> Rejected | None:
    """Why the sender is not the member that it names, and cannot become it."""
    is_join = command.member_epoch == JOIN_EPOCH
    named = f"with instance id {command.instance_id}"
    if member is None and not is_join:
        message = f"Member {command.member_id} is not a member of group {command.group_id}."
        if command.instance_id is not None:
            message = f"Instance id {command.instance_id} is unknown."
        return Rejected(Rejection.UNKNOWN_MEMBER, message)
    if member is None or member.member_id != command.member_id:
        if command.member_id in streams_of(group).members:
            return Rejected(Rejection.INVALID_REQUEST, _OTHER_INSTANCE)
        if member is None or (is_join and member.epoch == AWAY):
            return None
        if is_join:
            message = (
                f"Static member {command.member_id} {named} cannot join the group because the instance id is owned "
            )
            return Rejected(Rejection.UNRELEASED_INSTANCE, f"{message}by {member.member_id} member.")
        message = f"Static member {command.member_id} {named} was fenced by member {member.member_id}."
        return Rejected(Rejection.FENCED_INSTANCE, message)
    return None if command.member_epoch <= JOIN_EPOCH else _epoch_rejection(member, command)


def _epoch_rejection(member: StreamsMember, command: StreamsHeartbeat) -> Rejected | None:
    """A member may be one epoch behind, since an answer may be lost; then it may own only assigned tasks."""
    epoch, owned = command.member_epoch, command.owned
    if epoch == member.epoch:
        return None
    is_previous = epoch == member.previous_epoch and epoch < member.epoch
    if is_previous and owned is not None and _has_only(owned, member):
        return None
    than = "greater" if epoch > member.epoch else "smaller"
    message = (
        f"The streams group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    return Rejected(Rejection.FENCED_MEMBER_EPOCH, message)


def _has_only(owned: OwnedTasks, member: StreamsMember) -> bool:
    """Whether the member reports only tasks that it is assigned."""
    return not owned.warmup and _is_part(owned.active, member.active) and _is_part(owned.standby, member.standby)


def _is_part(owned: list[TaskIds], assigned: OwnedActive | Tasks) -> bool:
    found = {subtopology: dict.fromkeys(numbers) for subtopology, numbers in assigned.items()}
    return all(number in found.get(each.subtopology_id, ()) for each in owned for number in each.partitions)


def tasks_rejection(state: State, group: Group, owned: OwnedTasks | None) -> Rejected | None:
    """Why the reported tasks cannot exist."""
    configured = configured_of(state, streams_of(group))
    if owned is None or configured.status is not None:
        return None
    for each in (*owned.active, *owned.standby, *owned.warmup):
        count = configured.tasks.get(each.subtopology_id)
        if count is None:
            message = f"Subtopology {each.subtopology_id} does not exist in the topology."
            return Rejected(Rejection.INVALID_REQUEST, message)
        for number in each.partitions:
            if not 0 <= number < count:
                message = f"Task {number} for subtopology {each.subtopology_id} is invalid. "
                message += f"Number of tasks for this subtopology: {count}"
                return Rejected(Rejection.INVALID_REQUEST, message)
    return None


def member_of(group: Group, command: StreamsHeartbeat) -> StreamsMember | None:
    """The member of the heartbeat: by its instance id if it has one, else by its member id."""
    streams = streams_of(group)
    if command.instance_id is None:
        return streams.members.get(command.member_id)
    member_id = streams.static_members.get(command.instance_id)
    return None if member_id is None else streams.members[member_id]
