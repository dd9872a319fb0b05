"""Heartbeats of consumer groups' members, which are all that there is: join, stay, give back, leave (KIP-848).

`preview` says what a heartbeat would be answered if it changes nothing, so that only those that do are journaled. Both
are refused in Kafka's words. What is journaled and changes nothing is told all that the member has: a command that is
sent or appended twice may be answered by its second copy only. A heartbeat that comes late (its sender had not seen the
member's last change) and would change something is STALE: it could tell of partitions as given back that the member has
got again since.
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
    Standing,
    bump_epoch,
    consumer_of,
    enter_member,
    heartbeat_interval_ms,
    is_target_due,
    narrow_target,
    next_standing,
    record_assigned,
    remove_member,
    settle,
    standing_of,
    take_over,
    take_standing,
    told,
    update_target,
    weigh,
)
from penstock_sequencer.core.groups.consumer_validation import (
    NOT_TOLD,
    member_of,
    owned_partitions,
    pattern_validation_error,
    sender_rejection,
    validation_error,
    validation_error_to_member,
    validation_error_to_new,
)
from penstock_sequencer.core.groups.departed_members import departed_sequence
from penstock_sequencer.core.groups.migration import downgrade_if_due, upgrade
from penstock_sequencer.core.state.cluster import Changes, Group, State
from penstock_sequencer.core.state.consumer_group import AWAY, RECONCILED, ConsumerGroup, ConsumerMember
from penstock_sequencer.core.state.limits import CLOCK_MS_MAX, REBALANCE_TIMEOUT_MAX_MS

_LEAVING = (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)


def consumer_heartbeat(state: State, command: ConsumerHeartbeat, changes: Changes) -> ConsumerMembership | Rejected:
    """The member joins, goes on, or leaves."""
    answer = preview(state, command)
    if isinstance(answer, ConsumerMembership):
        # Nothing was to be journaled, so this came before: nobody may have got that answer and what it assigned.
        return msgspec.structs.replace(answer, assignment=_told(state, command))
    if answer is not None:
        return answer
    if command.member_epoch in _LEAVING:
        return _leave(state, command, changes)
    late = _lateness(state, command)
    if late:
        return Rejected(Rejection.STALE, late)
    group = _group_for(state, command)
    return _go_on(state, group, member_of(group, command), command, changes)


def _told(state: State, command: ConsumerHeartbeat) -> list[TopicPartitions]:
    return told(consumer_of(state.groups[command.group_id]).members[command.member_id].assigned)


def preview(state: State, command: ConsumerHeartbeat) -> ConsumerMembership | Rejected | None:
    """The answer to a heartbeat that is refused or changes nothing; None for one that is to be journaled."""
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
    error = pattern_validation_error(state, command)
    if member.member_id != command.member_id or error is not None:
        return error
    is_same = _said(member, command) == _said(member)
    is_same = is_same and not is_target_due(state, group.consumer, _now_ms(state, command))
    if not is_same or next_standing(group.consumer, member, owned_partitions(command)) != standing_of(member):
        return None
    return _answer(state, group.consumer, member, command, None)


class _Said(msgspec.Struct, frozen=True):
    """What a member says about itself, as far as anything depends on it."""

    topics: list[str]
    pattern: str
    assignor: str
    rack_id: str | None
    rebalance_timeout_ms: int
    is_classic: bool


def _said(member: ConsumerMember | None, command: ConsumerHeartbeat | None = None) -> _Said:
    """What the member has said, and what the command says anew."""
    said = _Said([], "", "", None, 1, is_classic=False)
    if member is not None:
        said = _Said(
            member.topics,
            member.pattern,
            member.assignor,
            member.rack_id,
            member.rebalance_timeout_ms,
            bool(member.protocols),
        )
    if command is None:
        return said
    timeout_ms = max(1, min(command.rebalance_timeout_ms, REBALANCE_TIMEOUT_MAX_MS))
    return _Said(
        said.topics if command.topics is None else sorted(dict.fromkeys(command.topics)),
        said.pattern if command.pattern is None else command.pattern,
        said.assignor if command.assignor is None else command.assignor,
        said.rack_id if command.rack_id is None else command.rack_id,
        said.rebalance_timeout_ms if command.rebalance_timeout_ms == NOT_TOLD else timeout_ms,
        is_classic=False,
    )


def _lateness(state: State, command: ConsumerHeartbeat) -> str:
    """What has happened since that the sender had not seen, "" if nothing."""
    group = state.groups.get(command.group_id)
    if 0 <= command.seen_sequence < departed_sequence(state, command.group_id, command.member_id):
        return "the member has left since"
    if group is None:
        return ""
    if group.consumer is None:  # a classic group, which becomes a consumer group
        came = group.static_since.get(command.instance_id or "", 0)
        return "the instance id's member has come since" if 0 <= command.seen_sequence < came else ""
    member = member_of(group, command)
    return "the member has changed since" if member is not None and _is_late(command, member) else ""


def _is_late(command: ConsumerHeartbeat, member: ConsumerMember) -> bool:
    return 0 <= command.seen_sequence < member.changed_sequence


def _group_for(state: State, command: ConsumerHeartbeat) -> Group:
    """The consumer group, made or made of a classic one if there is none."""
    group = state.groups.get(command.group_id) or new_group(state, command.group_id)
    if group.consumer is None:
        upgrade(state, group)
    return group


def _go_on(
    state: State, group: Group, known: ConsumerMember | None, command: ConsumerHeartbeat, changes: Changes
) -> ConsumerMembership:
    """The member, new or known, says what it has to say and takes the next step towards its target."""
    before = None if known is None else standing_of(known)
    member = _enter(state, group, known, command)
    now_ms = _now_ms(state, command)
    if is_target_due(state, consumer_of(group), now_ms):
        update_target(state, group)
        record_assigned(state, consumer_of(group), now_ms)
    elif consumer_of(group).assignment_epoch < consumer_of(group).epoch:
        narrow_target(state, member)
    take_standing(state, group, member, next_standing(consumer_of(group), member, owned_partitions(command)))
    member.active_sequence = member.changed_sequence = state.sequence
    weigh(state, member)
    settle(state, group, changes)
    return _answer(state, consumer_of(group), member, command, before)


def _enter(state: State, group: Group, known: ConsumerMember | None, command: ConsumerHeartbeat) -> ConsumerMember:
    """The member as it says that it is."""
    said = _said(known, command)
    member = known
    if known is None or member is None or known.member_id != command.member_id:
        member = _new_member(state, command, said)
        if known is not None:
            take_over(state, group, known, member)
        enter_member(state, group, member)
    elif (member.topics, member.pattern) != (said.topics, said.pattern):
        subscriptions.subscribe(state, group.group_id, said.topics, said.pattern)
        subscriptions.unsubscribe(state, group.group_id, member.topics, member.pattern)
    if known is None or (known.topics, known.pattern) != (said.topics, said.pattern):
        bump_epoch(state, group)
    if member.epoch == AWAY:
        member.epoch = member.previous_epoch = JOIN_EPOCH
    member.topics, member.pattern, member.assignor = said.topics, said.pattern, said.assignor
    member.rack_id, member.rebalance_timeout_ms = said.rack_id, said.rebalance_timeout_ms
    member.client_id, member.client_host = command.client_id, command.client_host
    member.protocols, member.session_timeout_ms, member.synced = [], 0, True
    return member


def _new_member(state: State, command: ConsumerHeartbeat, said: _Said) -> ConsumerMember:
    return ConsumerMember(
        member_id=command.member_id,
        instance_id=command.instance_id,
        rack_id=said.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        topics=said.topics,
        pattern=said.pattern,
        assignor=said.assignor,
        active_sequence=state.sequence,
    )


def _leave(state: State, command: ConsumerHeartbeat, changes: Changes) -> ConsumerMembership:
    """The member goes, or as a static one is away; a late command leaves who came again."""
    group = state.groups[command.group_id]
    member = member_of(group, command)
    assert member is not None, "looked at before"
    if not _is_late(command, member):
        if command.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            take_standing(state, group, member, Standing(RECONCILED, AWAY, member.assigned, {}))
            member.active_sequence = member.changed_sequence = state.sequence
            weigh(state, member)
        else:
            remove_member(state, group, member)
            downgrade_if_due(state, group, changes)
        if group.consumer is not None:
            settle(state, group, changes)
    return ConsumerMembership(command.member_id, command.member_epoch, 0, None)


def _now_ms(state: State, command: ConsumerHeartbeat) -> int:
    """The sender's clock, unless it tells no time at all."""
    return command.now_ms if command.now_ms <= CLOCK_MS_MAX else state.clock_ms


def _answer(
    state: State, consumer: ConsumerGroup, member: ConsumerMember, command: ConsumerHeartbeat, before: Standing | None
) -> ConsumerMembership:
    """With the assignment where the member says all about itself, as after an error, or where that has changed."""
    says_all = command.rebalance_timeout_ms != NOT_TOLD and command.owned is not None
    says_all = says_all and (command.topics is not None or command.pattern is not None)
    is_told = command.member_epoch == JOIN_EPOCH or says_all
    assignment: list[TopicPartitions] | None = None
    if is_told or (before is not None and before.assigned != member.assigned):
        assignment = told(member.assigned)
    interval_ms = heartbeat_interval_ms(state, consumer, member, _now_ms(state, command))
    return ConsumerMembership(member.member_id, member.epoch, interval_ms, assignment)
