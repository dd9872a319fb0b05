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
from penstock_sequencer.core.groups.assignment.assignors import ASSIGNORS
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
from penstock_sequencer.core.groups.departed_members import departed_sequence
from penstock_sequencer.core.groups.migration import can_upgrade, downgrade_if_due, upgrade
from penstock_sequencer.core.state.cluster import Changes, Group, State
from penstock_sequencer.core.state.consumer_group import AWAY, RECONCILED, ConsumerGroup, ConsumerMember, Partitions
from penstock_sequencer.core.state.limits import (
    CLOCK_MS_MAX,
    CONSUMER_MEMBERS_MAX,
    GROUP_BYTES_MAX,
    GROUP_ID_LENGTH_MAX,
    GROUPS_MAX,
    MEMBER_BYTES_MAX,
    MEMBER_NAMES_LENGTH_MAX,
    REBALANCE_TIMEOUT_MAX_MS,
)

_NOT_TOLD = -1
_LEAVING = (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)
_OTHER_INSTANCE = "the member has another instance id, or none"


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
    return _go_on(state, group, _member_of(group, command), command, changes)


def _told(state: State, command: ConsumerHeartbeat) -> list[TopicPartitions]:
    return told(consumer_of(state.groups[command.group_id]).members[command.member_id].assigned)


def preview(state: State, command: ConsumerHeartbeat) -> ConsumerMembership | Rejected | None:
    """The answer to a heartbeat that is refused or changes nothing; None for one that is to be journaled."""
    validation_error = _validation_error(command)
    if validation_error is not None:
        return validation_error
    group = state.groups.get(command.group_id)
    if group is None or group.consumer is None:
        return _validation_error_to_new(state, group, command)
    member = _member_of(group, command)
    rejection = _rejection(group, member, command)
    if rejection is not None:
        return rejection
    if command.member_epoch in _LEAVING:
        return None
    validation_error = (
        _validation_error_to_member(state, group, command)
        if member is None
        else _pattern_validation_error(state, command)
    )
    if member is None or member.member_id != command.member_id or validation_error is not None:
        return validation_error
    is_same = not is_target_due(state, group.consumer, _now_ms(state, command)) and _said(member, command) == _said(
        member
    )
    if not is_same or next_standing(group.consumer, member, _owned(command)) != standing_of(member):
        return None
    return _answer(state, group.consumer, member, command, None)


def _validation_error(command: ConsumerHeartbeat) -> Rejected | None:
    """What is wrong with the request itself."""
    wrong = _wrong(command)
    if wrong:
        return Rejected(Rejection.INVALID_REQUEST, wrong)
    if command.assignor is not None and command.assignor not in ASSIGNORS:
        message = f"ServerAssignor {command.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
        return Rejected(Rejection.UNSUPPORTED_ASSIGNOR, message)
    return None


def _wrong(command: ConsumerHeartbeat) -> str:
    """In Kafka's words and order, and after them what is only too large."""
    epoch = command.member_epoch
    if not command.group_id or not command.member_id:
        return "GroupId can't be empty." if not command.group_id else "MemberId can't be empty."
    if command.instance_id == "" or command.rack_id == "":
        return "InstanceId can't be empty." if command.instance_id == "" else "RackId can't be empty."
    if epoch == JOIN_EPOCH and command.rebalance_timeout_ms == _NOT_TOLD:
        return "RebalanceTimeoutMs must be provided in first request."
    if epoch == JOIN_EPOCH and (command.owned is None or command.owned):
        return "TopicPartitions must be empty when (re-)joining."
    if epoch == JOIN_EPOCH and command.topics is None and command.pattern is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if epoch == LEAVE_FOR_A_WHILE_EPOCH and command.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVE_FOR_A_WHILE_EPOCH:
        return "MemberEpoch is invalid."
    names = (command.member_id, command.instance_id or "", command.rack_id or "", command.client_id)
    length = sum(map(len, names)) + len(command.client_host)
    said = sum(map(len, command.topics or ())) + len(command.topics or ()) + len(command.pattern or "")
    if len(command.group_id) > GROUP_ID_LENGTH_MAX or length > MEMBER_NAMES_LENGTH_MAX or said > MEMBER_BYTES_MAX:
        return f"a member with names of {length} letters and a subscription of {said}"
    return ""


def _pattern_validation_error(state: State, command: ConsumerHeartbeat) -> Rejected | None:
    why = subscriptions.check_pattern(state, command.pattern or "")
    if not why:
        return None
    message = f"SubscribedTopicRegex `{command.pattern}` is not a valid regular expression: {why}."
    return Rejected(Rejection.INVALID_PATTERN, message)


def _validation_error_to_new(state: State, group: Group | None, command: ConsumerHeartbeat) -> Rejected | None:
    """Why there will be no consumer group of this heartbeat."""
    if command.group_id in state.share_groups:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} is not a consumer group.")
    if command.member_epoch != JOIN_EPOCH:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} not found.")
    if group is None and len(state.groups) >= GROUPS_MAX:
        return Rejected(Rejection.OVERLOADED, "no room for another group")
    if group is not None and not can_upgrade(group):
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} is not a consumer group.")
    known = None if group is None else group.members.get(command.member_id)
    if known is not None and command.instance_id not in (None, known.group_instance_id):
        return Rejected(Rejection.INVALID_REQUEST, _OTHER_INSTANCE)
    return _validation_error_to_member(state, group, command)


def _validation_error_to_member(state: State, group: Group | None, command: ConsumerHeartbeat) -> Rejected | None:
    """Why nobody can come with this heartbeat."""
    if group is not None:
        count = len(group.members) if group.consumer is None else len(group.consumer.members)
        if count >= CONSUMER_MEMBERS_MAX:
            message = f"The consumer group has reached its maximum capacity of {CONSUMER_MEMBERS_MAX} members."
            return Rejected(Rejection.GROUP_FULL, message)
    if state.group_bytes + MEMBER_BYTES_MAX > GROUP_BYTES_MAX:
        return Rejected(Rejection.OVERLOADED, "no room for another member")
    return _pattern_validation_error(state, command)


def _member_of(group: Group, command: ConsumerHeartbeat) -> ConsumerMember | None:
    """Whom the heartbeat is about: the member itself, or who has its instance id."""
    consumer = consumer_of(group)
    if command.instance_id is not None:
        member_id = consumer.static_members.get(command.instance_id)
        return None if member_id is None else consumer.members[member_id]
    return consumer.members.get(command.member_id)


def _rejection(group: Group, member: ConsumerMember | None, command: ConsumerHeartbeat) -> Rejected | None:
    """Why the sender is not, and does not become, the member that it wants to be."""
    is_join = command.member_epoch == JOIN_EPOCH
    if member is None:
        if not is_join:
            return Rejected(Rejection.UNKNOWN_MEMBER, f"Member {command.member_id} is not a member of the group.")
        if command.member_id in consumer_of(group).members:
            return Rejected(Rejection.INVALID_REQUEST, _OTHER_INSTANCE)
        return None
    who = f"instance id {command.instance_id}"
    if member.member_id != command.member_id:
        is_free = member.epoch == AWAY or bool(member.protocols)  # a classic one says nothing when it is restarted
        if is_join and is_free and command.member_id not in consumer_of(group).members:
            return None
        if is_join:
            message = (
                f"Static member {command.member_id} with {who} cannot join: the id is in use by {member.member_id}."
            )
            return Rejected(Rejection.UNRELEASED_INSTANCE, message)
        return Rejected(Rejection.FENCED_INSTANCE, f"Static member {command.member_id} with {who} was fenced.")
    return None if command.member_epoch <= JOIN_EPOCH else _epoch_rejection(member, command)


def _epoch_rejection(member: ConsumerMember, command: ConsumerHeartbeat) -> Rejected | None:
    """A member may be one epoch behind: the answer that told it may be lost. Then it has nothing that it may not."""
    epoch = command.member_epoch
    if epoch == member.epoch:
        return None
    owned = _owned(command)
    if (
        epoch == member.previous_epoch
        and epoch < member.epoch
        and owned is not None
        and _is_part(owned, member.assigned)
    ):
        return None
    than = "greater" if epoch > member.epoch else "smaller"
    message = (
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    return Rejected(Rejection.FENCED_MEMBER_EPOCH, message)


def _is_part(owned: Partitions, assigned: Partitions) -> bool:
    return all(set(numbers) <= set(assigned.get(topic_id, ())) for topic_id, numbers in owned.items())


def _owned(command: ConsumerHeartbeat) -> Partitions | None:
    if command.owned is None:
        return None
    return {each.topic_id: each.partitions for each in command.owned}


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
        said.rebalance_timeout_ms if command.rebalance_timeout_ms == _NOT_TOLD else timeout_ms,
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
    member = _member_of(group, command)
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
    take_standing(state, group, member, next_standing(consumer_of(group), member, _owned(command)))
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
    member = _member_of(group, command)
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
    says_all = command.rebalance_timeout_ms != _NOT_TOLD and command.owned is not None
    says_all = says_all and (command.topics is not None or command.pattern is not None)
    is_told = command.member_epoch == JOIN_EPOCH or says_all
    assignment: list[TopicPartitions] | None = None
    if is_told or (before is not None and before.assigned != member.assigned):
        assignment = told(member.assigned)
    interval_ms = heartbeat_interval_ms(state, consumer, member, _now_ms(state, command))
    return ConsumerMembership(member.member_id, member.epoch, interval_ms, assignment)
