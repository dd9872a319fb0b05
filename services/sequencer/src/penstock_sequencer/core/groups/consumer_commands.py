"""Heartbeats of consumer groups' members, their only command: join, stay, give back, leave (KIP-848).

`preview` answers heartbeats that change nothing, so that only the other ones are journaled. Both reject in Kafka's
words. A journaled heartbeat that changes nothing is answered with the whole assignment: a command that is sent or
appended twice may be answered by its second copy only. A late heartbeat (its sender had not seen the member's last
change) that would change something is STALE. It could give back partitions that the member has got again since.
"""

import msgspec

from penstock.contracts.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerHeartbeat,
    ConsumerMembership,
    Rejected,
    TopicPartitions,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.assignment import subscriptions
from penstock_sequencer.core.groups.classic_group import new_group
from penstock_sequencer.core.groups.consumer_group import (
    Progress,
    apply_progress,
    bump_epoch,
    consumer_of,
    enter_member,
    heartbeat_interval_ms,
    is_target_due,
    narrow_target,
    next_progress,
    progress_of,
    record_assigned,
    remove_members,
    settle,
    take_over,
    topic_partitions,
    update_target,
    weigh,
)
from penstock_sequencer.core.groups.consumer_validation import (
    NOT_SET,
    member_of,
    owned_partitions,
    sender_rejection,
    subscription_validation_error,
    validation_error,
    validation_error_to_member,
    validation_error_to_new,
)
from penstock_sequencer.core.groups.departed_members import departed_sequence
from penstock_sequencer.core.groups.migration import downgrade_if_due, upgrade
from penstock_sequencer.core.state.cluster import Changes, Group, State
from penstock_sequencer.core.state.consumer_group import AWAY, RECONCILED, ConsumerMember
from penstock_sequencer.core.state.limits import CLOCK_MS_MAX, REBALANCE_TIMEOUT_MAX_MS
from penstock_sequencer.core.state.shares import enter

_LEAVING = (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)


def consumer_heartbeat(state: State, command: ConsumerHeartbeat, changes: Changes) -> ConsumerMembership | Rejected:
    """The member joins, stays, or leaves."""
    answer = preview(state, command)
    if isinstance(answer, ConsumerMembership):
        # Only changes are journaled, so an earlier copy made the change; its answer and assignment may be lost.
        return msgspec.structs.replace(answer, assignment=_assignment(state, command))
    if answer is not None:
        return answer
    if command.member_epoch in _LEAVING:
        return _leave(state, command, changes)
    late = _late_reason(state, command)
    if late:
        return Rejected(Rejection.STALE, late)
    group = _group_for(state, command)
    return _continue(state, group, member_of(group, command), command, changes)


def _assignment(state: State, command: ConsumerHeartbeat) -> list[TopicPartitions]:
    return topic_partitions(consumer_of(state.groups[command.group_id]).members[command.member_id].assigned)


def preview(state: State, command: ConsumerHeartbeat) -> ConsumerMembership | Rejected | None:
    """The answer to a heartbeat that is rejected or changes nothing; None for one that must be journaled."""
    error = validation_error(state, command)
    if error is not None:
        return error
    group = state.groups.get(command.group_id)
    if group is None or group.consumer is None:
        return validation_error_to_new(state, group, command)
    member = member_of(group, command)
    rejection = sender_rejection(group, member, command)
    if rejection is not None:
        return rejection
    if command.member_epoch in _LEAVING:
        return None
    if member is None:
        return validation_error_to_member(state, group, command)
    error = subscription_validation_error(state, group, member, command)
    if member.member_id != command.member_id or error is not None:
        return error
    is_same = _settings(member, command) == _settings(member)
    is_same = is_same and not is_target_due(state, group, _now_ms(state, command))
    if not is_same or next_progress(group.consumer, member, owned_partitions(command)) != progress_of(member):
        return None
    return _answer(state, group, member, command, None)


class _Settings(msgspec.Struct, frozen=True):
    """A member's description of itself, as far as the assignment or the answer depends on it."""

    topics: list[str]
    pattern: str
    assignor: str
    rack_id: str | None
    rebalance_timeout_ms: int
    is_classic: bool


def _settings(member: ConsumerMember | None, command: ConsumerHeartbeat | None = None) -> _Settings:
    """The member's settings so far, with those that the command changes."""
    settings = _Settings([], "", "", None, 1, is_classic=False)
    if member is not None:
        settings = _Settings(
            member.topics,
            member.pattern,
            member.assignor,
            member.rack_id,
            member.rebalance_timeout_ms,
            bool(member.protocols),
        )
    if command is None:
        return settings
    timeout_ms = max(1, min(command.rebalance_timeout_ms, REBALANCE_TIMEOUT_MAX_MS))
    return _Settings(
        settings.topics if command.topics is None else sorted(dict.fromkeys(command.topics)),
        settings.pattern if command.pattern is None else command.pattern,
        settings.assignor if command.assignor is None else command.assignor,
        settings.rack_id if command.rack_id is None else command.rack_id,
        settings.rebalance_timeout_ms if command.rebalance_timeout_ms == NOT_SET else timeout_ms,
        is_classic=False,
    )


def _late_reason(state: State, command: ConsumerHeartbeat) -> str:
    """The change since that the sender had not seen; "" if there is none."""
    group = state.groups.get(command.group_id)
    if 0 <= command.seen_sequence < departed_sequence(state, command.group_id, command.member_id):
        return "the member has left since"
    if group is None:
        return ""
    if group.consumer is None:  # a classic group, which becomes a consumer group
        came = group.static_since.get(command.instance_id or "", 0)
        return "the member of the instance id has joined since" if 0 <= command.seen_sequence < came else ""
    member = member_of(group, command)
    return "the member has changed since" if member is not None and _is_late(command, member) else ""


def _is_late(command: ConsumerHeartbeat, member: ConsumerMember) -> bool:
    return 0 <= command.seen_sequence < member.changed_sequence


def _group_for(state: State, command: ConsumerHeartbeat) -> Group:
    """The consumer group; it is made new, or converted from a classic group, if there is none."""
    group = state.groups.get(command.group_id)
    if group is None:
        group = new_group(state, command.group_id, enter(state, command.principal))
    if group.consumer is None:
        upgrade(state, group)
    return group


def _continue(
    state: State, group: Group, known: ConsumerMember | None, command: ConsumerHeartbeat, changes: Changes
) -> ConsumerMembership:
    """The member, new or known, updates its settings and takes the next step towards its target."""
    before = None if known is None else progress_of(known)
    member = _enter(state, group, known, command)
    now_ms = _now_ms(state, command)
    if is_target_due(state, group, now_ms):
        update_target(state, group)
        record_assigned(state, consumer_of(group), now_ms)
    elif consumer_of(group).assignment_epoch < consumer_of(group).epoch:
        narrow_target(state, member)
    apply_progress(state, group, member, next_progress(consumer_of(group), member, owned_partitions(command)))
    member.active_sequence = member.changed_sequence = state.sequence
    weigh(state, member)
    settle(state, group, changes)
    return _answer(state, group, member, command, before)


def _enter(state: State, group: Group, known: ConsumerMember | None, command: ConsumerHeartbeat) -> ConsumerMember:
    """Add or update the member by the command."""
    settings = _settings(known, command)
    member = known
    if known is None or member is None or known.member_id != command.member_id:
        member = _new_member(state, command, settings)
        if known is not None:
            take_over(state, group, known, member)
        enter_member(state, group, member)
    elif (member.topics, member.pattern) != (settings.topics, settings.pattern):
        subscriptions.subscribe(state, group.group_id, settings.topics, settings.pattern)
        subscriptions.unsubscribe(state, group.group_id, member.topics, member.pattern)
    if known is None or (known.topics, known.pattern) != (settings.topics, settings.pattern):
        bump_epoch(state, group)
    if member.epoch == AWAY:
        member.epoch = member.previous_epoch = JOIN_EPOCH
    member.topics, member.pattern, member.assignor = settings.topics, settings.pattern, settings.assignor
    member.rack_id, member.rebalance_timeout_ms = settings.rack_id, settings.rebalance_timeout_ms
    member.client_id, member.client_host = command.client_id, command.client_host
    member.protocols, member.session_timeout_ms, member.synced = [], 0, True
    return member


def _new_member(state: State, command: ConsumerHeartbeat, settings: _Settings) -> ConsumerMember:
    return ConsumerMember(
        member_id=command.member_id,
        instance_id=command.instance_id,
        rack_id=settings.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        topics=settings.topics,
        pattern=settings.pattern,
        assignor=settings.assignor,
        active_sequence=state.sequence,
        owner=enter(state, command.principal),
    )


def _leave(state: State, command: ConsumerHeartbeat, changes: Changes) -> ConsumerMembership:
    """Remove the member, or mark a static one as away. A late command removes no member that joined again."""
    group = state.groups[command.group_id]
    member = member_of(group, command)
    assert member is not None, "the preview has found it"
    if not _is_late(command, member):
        if command.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            apply_progress(state, group, member, Progress(RECONCILED, AWAY, member.assigned, {}))
            member.active_sequence = member.changed_sequence = state.sequence
            weigh(state, member)
        else:
            remove_members(state, group, [member])
            downgrade_if_due(state, group, changes)
        if group.consumer is not None:
            settle(state, group, changes)
    return ConsumerMembership(command.member_id, command.member_epoch, 0, None)


def _now_ms(state: State, command: ConsumerHeartbeat) -> int:
    """The sender's clock, or the machine's clock if the sender's is out of range."""
    return command.now_ms if command.now_ms <= CLOCK_MS_MAX else state.clock_ms


def _answer(
    state: State, group: Group, member: ConsumerMember, command: ConsumerHeartbeat, before: Progress | None
) -> ConsumerMembership:
    """With the assignment if it has changed, or if the member sends all its settings, as after an error."""
    sends_all = command.rebalance_timeout_ms != NOT_SET and command.owned is not None
    sends_all = sends_all and (command.topics is not None or command.pattern is not None)
    is_full = command.member_epoch == JOIN_EPOCH or sends_all
    assignment: list[TopicPartitions] | None = None
    if is_full or (before is not None and before.assigned != member.assigned):
        assignment = topic_partitions(member.assigned)
    interval_ms = heartbeat_interval_ms(state, group, member, _now_ms(state, command))
    return ConsumerMembership(member.member_id, member.epoch, interval_ms, assignment)
