"""Classic members of a consumer group: join, sync, heartbeat, leave; see `migration` for when this happens.

JoinGroup is answered at once, since it waits for no other member. The generation is the member's epoch; there is no
leader. SyncGroup answers with the partitions that the member may use now.
"""

from penstock.contracts.commands import (
    JOIN_EPOCH,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberIdRequired,
    PerItem,
    Rejected,
    Synced,
    SyncGroup,
)
from penstock.contracts.queries.groups import HeartbeatQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.assignment import classic_subscription_codec, subscriptions
from penstock_sequencer.core.groups.assignment.classic_subscription_codec import PROTOCOL_TYPE, Malformed, Subscription
from penstock_sequencer.core.groups.consumer_group import (
    apply_progress,
    bump_epoch,
    consumer_of,
    enter_member,
    leave_member,
    next_progress,
    record_due,
    settle,
    take_over,
    update_target,
    weigh,
)
from penstock_sequencer.core.groups.departed_members import departed_sequence
from penstock_sequencer.core.groups.migration import (
    assignment_of,
    downgrade_if_due,
    member_names_max,
    must_join_again,
    partitions_of,
)
from penstock_sequencer.core.state.cluster import Changes, Group, State
from penstock_sequencer.core.state.consumer_group import AWAY, REVOKING, ConsumerGroup, ConsumerMember
from penstock_sequencer.core.state.limits import REBALANCE_TIMEOUT_MAX_MS
from penstock_sequencer.core.state.shares import enter


def join(state: State, group: Group, command: JoinGroup, changes: Changes) -> Joined | MemberIdRequired | Rejected:
    """A classic member joins for the first time, or joins again."""
    consumer = consumer_of(group)
    subscription = _subscription(state, consumer, command)
    if subscription is None:
        return Rejected(Rejection.INCONSISTENT_PROTOCOL)
    if not command.member_id and command.require_known_member and command.group_instance_id is None:
        return MemberIdRequired(command.new_member_id)
    member_id = command.member_id or command.new_member_id
    known = _known(consumer, command, member_id)
    left = departed_sequence(state, group.group_id, member_id)
    members_max = state.limits.consumers.consumer_members_max
    rejection = _join_rejection(consumer, known, command, member_id, left, members_max)
    if rejection == Rejection.STALE and known is not None and _joined_by(known, command):
        return _joined(known)
    if rejection:
        return Rejected(rejection)
    member = _enter(state, group, known, command, subscription, member_id)
    update_target(state, group)
    owned = partitions_of(state, subscription.owned)
    apply_progress(state, group, member, next_progress(consumer, member, owned))
    member.active_sequence = member.changed_sequence = state.sequence
    member.synced = False
    member.due_ms = 0
    record_due(state, consumer, member)
    weigh(state, member)
    settle(state, group, changes)
    answer = _joined(member)
    downgrade_if_due(state, group, changes)
    return answer


def _joined_by(member: ConsumerMember, command: JoinGroup) -> bool:
    """Whether the member joined by this command, which may be journaled twice: the member id was made for it."""
    return not command.member_id and member.member_id == command.new_member_id and bool(member.protocols)


def _joined(member: ConsumerMember) -> Joined:
    return Joined(member.epoch, PROTOCOL_TYPE, member.protocols[0].name, "", member.member_id, [])


def _subscription(state: State, consumer: ConsumerGroup, command: JoinGroup) -> Subscription | None:
    """The member's subscription; None if it is malformed or has no protocol in common with other classic members."""
    if command.protocol_type != PROTOCOL_TYPE or not command.protocols:
        return None
    names = {each.name for each in command.protocols}
    for member in consumer.members.values():
        if member.protocols and member.member_id != command.member_id:
            names &= {each.name for each in member.protocols}
    try:
        data, names_max = command.protocols[0].metadata, member_names_max(state)
        return classic_subscription_codec.read_subscription(data, names_max) if names else None
    except Malformed:
        return None


def _known(consumer: ConsumerGroup, command: JoinGroup, member_id: str) -> ConsumerMember | None:
    if command.group_instance_id is not None:
        known_id = consumer.static_members.get(command.group_instance_id)
        return None if known_id is None else consumer.members[known_id]
    return consumer.members.get(member_id)


def _join_rejection(
    consumer: ConsumerGroup,
    known: ConsumerMember | None,
    command: JoinGroup,
    member_id: str,
    left: int,
    members_max: int,
) -> Rejection:
    """Kafka's reason why the member may not join, or STALE; `left` is the entry by which a former member left."""
    is_static = command.group_instance_id is not None
    newest = left if known is None else known.changed_sequence
    if 0 <= command.seen_sequence < newest:
        return Rejection.STALE
    if known is None:
        if is_static and command.member_id:
            return Rejection.UNKNOWN_MEMBER
        if member_id in consumer.members:
            return Rejection.INVALID_REQUEST
        is_full = len(consumer.members) >= members_max
        return Rejection.GROUP_FULL if is_full else Rejection.NONE
    if known.member_id != member_id and (command.member_id or member_id in consumer.members):
        return Rejection.FENCED_INSTANCE
    return Rejection.NONE


def _enter(
    state: State,
    group: Group,
    known: ConsumerMember | None,
    command: JoinGroup,
    subscription: Subscription,
    member_id: str,
) -> ConsumerMember:
    """Add or update the member; a static member that was restarted takes over its former partitions."""
    topics = sorted(dict.fromkeys(subscription.topics))
    before = None if known is None else (known.topics, known.pattern)
    if known is None or known.member_id != member_id:
        member = ConsumerMember(
            member_id, command.group_instance_id, subscription.rack_id, "", "", 1, topics, "", "", state.sequence
        )
        member.owner = enter(state, command.principal)
        if known is not None:
            take_over(state, group, known, member)
        enter_member(state, group, member)
    else:
        member = known
        subscriptions.subscribe(state, group.group_id, topics, "")
        subscriptions.unsubscribe(state, group.group_id, member.topics, member.pattern)
    if member.epoch == AWAY:
        member.epoch = member.previous_epoch = JOIN_EPOCH
    member.topics, member.pattern, member.assignor, member.rack_id = topics, "", "", subscription.rack_id
    member.client_id, member.client_host = command.client_id, command.client_host
    member.rebalance_timeout_ms = max(1, min(command.rebalance_timeout_ms, REBALANCE_TIMEOUT_MAX_MS))
    member.session_timeout_ms, member.protocols = command.session_timeout_ms, command.protocols
    if before != (topics, ""):
        bump_epoch(state, group)
    return member


def sync_rejection(group: Group, command: SyncGroup) -> Rejection:
    """Why the member gets no partitions now."""
    consumer = consumer_of(group)
    rejection = _member_rejection(consumer, command.member_id, command.group_instance_id, command.generation)
    if rejection:
        return rejection
    member = consumer.members[command.member_id]
    protocol = member.protocols[0].name
    if command.protocol_type not in (None, PROTOCOL_TYPE) or command.protocol not in (None, protocol):
        return Rejection.INCONSISTENT_PROTOCOL
    is_behind = member.epoch < consumer.epoch and member.state != REVOKING
    return Rejection.REBALANCE_IN_PROGRESS if is_behind else Rejection.NONE


def sync(state: State, group: Group, command: SyncGroup, changes: Changes) -> Synced:
    """Answer with the partitions that the member may use now; `sync_rejection` has found nothing."""
    consumer = consumer_of(group)
    member = consumer.members[command.member_id]
    member.synced = True
    member.active_sequence = state.sequence
    member.due_ms = member.due_ms if member.state == REVOKING else 0
    record_due(state, consumer, member)
    settle(state, group, changes)
    return Synced(PROTOCOL_TYPE, member.protocols[0].name, assignment_of(state, member, member.assigned))


def heartbeat(group: Group, query: HeartbeatQuery) -> Rejection:
    """Whether the member may continue without joining again."""
    consumer = consumer_of(group)
    rejection = _member_rejection(consumer, query.member_id, query.group_instance_id, query.generation)
    if rejection:
        return rejection
    is_over = must_join_again(consumer, consumer.members[query.member_id])
    return Rejection.REBALANCE_IN_PROGRESS if is_over else Rejection.NONE


def _member_rejection(consumer: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Rejection:
    rejection = _identity_rejection(consumer, member_id, instance_id)
    if rejection:
        return rejection
    return Rejection.NONE if generation == consumer.members[member_id].epoch else Rejection.ILLEGAL_GENERATION


def _identity_rejection(consumer: ConsumerGroup, member_id: str, instance_id: str | None) -> Rejection:
    """Whether this is a classic member of the group, and the current member of its instance id."""
    if instance_id is not None:
        present = consumer.static_members.get(instance_id)
        if present is None:
            return Rejection.UNKNOWN_MEMBER
        if present != member_id:
            return Rejection.FENCED_INSTANCE
    member = consumer.members.get(member_id)
    return Rejection.NONE if member is not None and member.protocols else Rejection.UNKNOWN_MEMBER


def leave(state: State, group: Group, command: LeaveGroup, changes: Changes) -> PerItem:
    """Classic members leave; members of the new protocol leave by their heartbeats."""
    rejections = [_leave(state, group, leaving, command.seen_sequence) for leaving in command.members]
    left = rejections.count(Rejection.NONE)
    if left:
        bump_epoch(state, group, left)  # once for all: it looks at all classic members that stay
    downgrade_if_due(state, group, changes)
    if group.consumer is not None:
        settle(state, group, changes)
    return PerItem(rejections)


def leave_rejections(group: Group, command: LeaveGroup) -> list[Rejection]:
    """Why each of the members cannot leave; NONE for one that can."""
    consumer = consumer_of(group)
    return [_leave_rejection(consumer, leaving, command.seen_sequence) for leaving in command.members]


def _leave_rejection(consumer: ConsumerGroup, leaving: LeavingMember, seen_sequence: int) -> Rejection:
    member_id = _leaving_id(consumer, leaving)
    rejection = _identity_rejection(consumer, member_id, leaving.group_instance_id)
    is_late = not rejection and 0 <= seen_sequence < consumer.members[member_id].changed_sequence
    return Rejection.STALE if is_late else rejection


def _leaving_id(consumer: ConsumerGroup, leaving: LeavingMember) -> str:
    """The member id; an administrator gives only the instance id."""
    if leaving.member_id or leaving.group_instance_id is None:
        return leaving.member_id
    return consumer.static_members.get(leaving.group_instance_id, "")


def _leave(state: State, group: Group, leaving: LeavingMember, seen_sequence: int) -> Rejection:
    """Remove the member; the caller then raises the epoch."""
    consumer = consumer_of(group)
    rejection = _leave_rejection(consumer, leaving, seen_sequence)
    if not rejection:
        leave_member(state, group, consumer.members[_leaving_id(consumer, leaving)])
    return rejection
