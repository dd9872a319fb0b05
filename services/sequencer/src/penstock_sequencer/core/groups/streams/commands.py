"""Heartbeats of members of streams groups, their only command: join, stay, give back, leave (KIP-1071).

As with consumer groups, `preview` answers heartbeats that change nothing, so that only the other ones are journaled. A
late heartbeat that would change something is STALE.
"""

import msgspec

from penstock.contracts.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Rejected,
    StreamsHeartbeat,
    StreamsMembership,
    TaskOffset,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.classic_group import new_group
from penstock_sequencer.core.groups.departed_members import departed_sequence
from penstock_sequencer.core.groups.streams.group import (
    apply_progress,
    assigned_tasks,
    bump_epoch,
    change_process,
    configured_of,
    delay_target,
    endpoints,
    enter_member,
    enter_topology,
    heartbeat_interval_ms,
    is_target_due,
    leave_member,
    release_tasks,
    remove_member,
    settle,
    standby_replicas,
    statuses,
    streams_of,
    update_target,
    weigh,
)
from penstock_sequencer.core.groups.streams.progress import Progress, next_progress, progress_of
from penstock_sequencer.core.groups.streams.validation import (
    NOT_SET,
    growth_validation_error,
    member_of,
    sender_rejection,
    tasks_rejection,
    topology_rejection,
    validation_error,
    validation_error_to_member,
    validation_error_to_new,
)
from penstock_sequencer.core.state.cluster import Changes, Group, State
from penstock_sequencer.core.state.consumer_group import AWAY, RECONCILED
from penstock_sequencer.core.state.limits import CLOCK_MS_MAX, REBALANCE_TIMEOUT_MAX_MS
from penstock_sequencer.core.state.shares import enter
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember

_LEAVING = (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)


def streams_heartbeat(state: State, command: StreamsHeartbeat, changes: Changes) -> StreamsMembership | Rejected:
    """The member joins, stays, or leaves."""
    answer = preview(state, command)
    if isinstance(answer, StreamsMembership):
        # Only changes are journaled, so an earlier copy made the change; its answer and tasks may be lost.
        member = streams_of(state.groups[command.group_id]).members[command.member_id]
        return msgspec.structs.replace(answer, tasks=assigned_tasks(member))
    if answer is not None:
        return answer
    if command.member_epoch in _LEAVING:
        return _leave(state, command, changes)
    late = _late_reason(state, command)
    if late:
        return Rejected(Rejection.STALE, late)
    group = _group_for(state, command)
    return _continue(state, group, member_of(group, command), command, changes)


def preview(state: State, command: StreamsHeartbeat) -> StreamsMembership | Rejected | None:
    """The answer to a heartbeat that is rejected or changes nothing; None for one that must be journaled."""
    error = validation_error(state, command)
    if error is not None:
        return error
    group = state.groups.get(command.group_id)
    if group is None or group.streams is None:
        return validation_error_to_new(state, group, command)
    member = member_of(group, command)
    rejection = sender_rejection(group, member, command)
    if rejection is not None:
        return rejection
    if command.member_epoch in _LEAVING:
        return None
    error = topology_rejection(state, group, command) or tasks_rejection(state, group, command.owned)
    if error is not None:
        return error
    if member is None:
        return validation_error_to_member(state, group, command)
    if member.member_id != command.member_id or _settings(member, command) != _settings(member):
        return growth_validation_error(state, group, member, command)
    streams, now_ms = group.streams, _now_ms(state, command)
    is_same = not is_target_due(streams, now_ms) and not (command.shuts_down and not streams.shutdown_by)
    is_same = is_same and streams.standby_replicas == standby_replicas(state, group.group_id)
    if not is_same or next_progress(streams, member, command.owned) != progress_of(member):
        return None
    return _answer(state, group, member, command, has_changed=False)


class _Settings(msgspec.Struct, frozen=True):
    """A member's description of itself, as far as the assignment or the answer depends on it."""

    rack_id: str | None
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: tuple[str, int] | None
    client_tags: list[tuple[str, str]]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]


def _settings(member: StreamsMember | None, command: StreamsHeartbeat | None = None) -> _Settings:
    """The member's settings so far, with those that the command changes."""
    settings = _Settings(None, 1, 0, "", None, [], [], [])
    if member is not None:
        settings = _Settings(
            member.rack_id,
            member.rebalance_timeout_ms,
            member.topology_epoch,
            member.process_id,
            member.endpoint,
            member.client_tags,
            member.task_offsets,
            member.task_end_offsets,
        )
    if command is None:
        return settings
    timeout_ms = max(1, min(command.rebalance_timeout_ms, REBALANCE_TIMEOUT_MAX_MS))
    return _Settings(
        settings.rack_id if command.rack_id is None else command.rack_id,
        settings.rebalance_timeout_ms if command.rebalance_timeout_ms == NOT_SET else timeout_ms,
        settings.topology_epoch if command.topology is None else command.topology.epoch,
        settings.process_id if command.process_id is None else command.process_id,
        settings.endpoint if command.endpoint is None else command.endpoint,
        settings.client_tags if command.client_tags is None else command.client_tags,
        settings.task_offsets if command.task_offsets is None else command.task_offsets,
        settings.task_end_offsets if command.task_end_offsets is None else command.task_end_offsets,
    )


def _late_reason(state: State, command: StreamsHeartbeat) -> str:
    """The change since that the sender had not seen; "" if there is none."""
    if 0 <= command.seen_sequence < departed_sequence(state, command.group_id, command.member_id):
        return "the member has left since"
    group = state.groups.get(command.group_id)
    if group is None or group.streams is None:
        return ""
    member = member_of(group, command)
    return "the member has changed since" if member is not None and _is_late(command, member) else ""


def _is_late(command: StreamsHeartbeat, member: StreamsMember) -> bool:
    return 0 <= command.seen_sequence < member.changed_sequence


def _group_for(state: State, command: StreamsHeartbeat) -> Group:
    """The streams group; it is made new, or converted from an empty classic group, if there is none."""
    group = state.groups.get(command.group_id)
    if group is None:
        group = new_group(state, command.group_id, enter(state, command.principal))
    if group.streams is None:
        assert command.topology is not None, "a member joins with a topology"
        enter_topology(state, group, StreamsGroup(command.topology))
    return group


def _continue(
    state: State, group: Group, known: StreamsMember | None, command: StreamsHeartbeat, changes: Changes
) -> StreamsMembership:
    """The member, new or known, updates its settings and takes the next step towards its target."""
    streams, now_ms = streams_of(group), _now_ms(state, command)
    # A copy: a member that moves to another process loses tasks in place.
    before = None if known is None else (known.endpoint, known.active, {**known.standby})
    if not streams.members:
        delay_target(state, group, now_ms)
    member = _enter(state, group, known, command)
    replicas = standby_replicas(state, group.group_id)
    if streams.standby_replicas != replicas:
        streams.standby_replicas = replicas
        bump_epoch(streams)
    if command.shuts_down and not streams.shutdown_by:
        streams.shutdown_by = member.member_id
    if is_target_due(streams, now_ms):
        update_target(state, group, now_ms)
    apply_progress(state, streams, member, next_progress(streams, member, command.owned))
    has_changed = before is None or before[1:] != (member.active, member.standby)
    old_endpoint = None if before is None else before[0]
    if member.endpoint != old_endpoint or (has_changed and member.endpoint is not None):
        streams.endpoint_epoch += 1
    member.active_sequence = member.changed_sequence = state.sequence
    weigh(state, member)
    settle(state, group, changes)
    return _answer(state, group, member, command, has_changed=has_changed)


def _enter(state: State, group: Group, known: StreamsMember | None, command: StreamsHeartbeat) -> StreamsMember:
    """Add or update the member by the command."""
    streams, settings, former = streams_of(group), _settings(known, command), _settings(known)
    if known is None or known.member_id != command.member_id:
        member = _new_member(state, command, settings)
        if known is not None:  # a static member returns under another id, and has its former tasks
            member.active, member.standby = _at_epoch_0(known), known.standby
            member.target_active, member.target_standby = known.target_active, known.target_standby
            leave_member(state, group, known)
        enter_member(state, group, member)
    else:
        member = known
        if member.process_id != settings.process_id:
            release_tasks(streams, member)
            change_process(streams, member, settings.process_id)
    if known is None or _relevant(settings) != _relevant(former):
        bump_epoch(streams)
    if member.epoch == AWAY:
        member.epoch = member.previous_epoch = JOIN_EPOCH
    member.rack_id, member.rebalance_timeout_ms = settings.rack_id, settings.rebalance_timeout_ms
    member.topology_epoch, member.process_id = settings.topology_epoch, settings.process_id
    member.endpoint, member.client_tags = settings.endpoint, settings.client_tags
    member.task_offsets, member.task_end_offsets = settings.task_offsets, settings.task_end_offsets
    member.client_id, member.client_host = command.client_id, command.client_host
    return member


def _relevant(settings: _Settings) -> tuple[object, ...]:
    """The settings on which the assignment depends; offsets of tasks count only at the next one."""
    return settings.rack_id, settings.topology_epoch, settings.process_id, settings.client_tags


def _at_epoch_0(member: StreamsMember) -> dict[str, dict[int, int]]:
    """The member's active tasks, which a new member with its instance id has had from the start."""
    return {subtopology: dict.fromkeys(epochs, 0) for subtopology, epochs in member.active.items()}


def _new_member(state: State, command: StreamsHeartbeat, settings: _Settings) -> StreamsMember:
    return StreamsMember(
        member_id=command.member_id,
        instance_id=command.instance_id,
        rack_id=settings.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        topology_epoch=settings.topology_epoch,
        process_id=settings.process_id,
        endpoint=settings.endpoint,
        client_tags=settings.client_tags,
        active_sequence=state.sequence,
        task_offsets=settings.task_offsets,
        task_end_offsets=settings.task_end_offsets,
        owner=enter(state, command.principal),
    )


def _leave(state: State, command: StreamsHeartbeat, changes: Changes) -> StreamsMembership:
    """Remove the member, or mark a static one as away. A late command removes no member that joined again."""
    group = state.groups[command.group_id]
    streams, member = streams_of(group), member_of(group, command)
    assert member is not None, "the preview has found it"
    if not _is_late(command, member):
        if command.shuts_down and not streams.shutdown_by:
            streams.shutdown_by = member.member_id
        if command.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            apply_progress(
                state, streams, member, Progress(RECONCILED, AWAY, _at_epoch_0(member), member.standby, {}, {})
            )
            member.active_sequence = member.changed_sequence = state.sequence
            weigh(state, member)
        else:
            remove_member(state, group, member)
        settle(state, group, changes)
    return StreamsMembership(command.member_id, command.member_epoch, 0, [], None, 0, None, [])


def _now_ms(state: State, command: StreamsHeartbeat) -> int:
    """The sender's clock, or the machine's clock if the sender's is out of range."""
    return command.now_ms if command.now_ms <= CLOCK_MS_MAX else state.clock_ms


def _answer(
    state: State, group: Group, member: StreamsMember, command: StreamsHeartbeat, *, has_changed: bool
) -> StreamsMembership:
    """The membership; with the tasks if they have changed, if the member joins, or if it reports other ones."""
    streams, tasks = streams_of(group), assigned_tasks(member)
    owned = command.owned
    is_other = owned is not None and (owned.active, owned.standby) != (tasks.active, tasks.standby)
    is_full = command.member_epoch == JOIN_EPOCH or has_changed or is_other
    has_endpoints = streams.endpoint_epoch == command.endpoint_epoch
    return StreamsMembership(
        member.member_id,
        member.epoch,
        heartbeat_interval_ms(state, group, member),
        statuses(state, streams, member, _now_ms(state, command)),
        tasks if is_full else None,
        streams.endpoint_epoch,
        None if has_endpoints else endpoints(state, streams),
        configured_of(state, streams).missing,
    )
