"""Why a heartbeat of a consumer group's member is rejected: the request, the group, the member, its epoch (KIP-848)."""

from penstock.contracts.commands import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, ConsumerHeartbeat, Rejected
from penstock.contracts.levels import GROUP_SIZES_LEVEL, SUBSCRIBED_TOPICS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.assignment import subscriptions
from penstock_sequencer.core.groups.assignment.assignors import ASSIGNORS
from penstock_sequencer.core.groups.consumer_group import consumer_of, subscription_bytes
from penstock_sequencer.core.groups.migration import can_upgrade
from penstock_sequencer.core.state.cluster import Group, State
from penstock_sequencer.core.state.consumer_group import AWAY, ConsumerMember, Partitions
from penstock_sequencer.core.state.group_sizes import is_room_for_group, is_room_for_member, members_of
from penstock_sequencer.core.state.limits import GroupLimits
from penstock_sequencer.core.state.shares import number_of

NOT_SET = -1  # a rebalance timeout that the heartbeat does not contain
_OTHER_INSTANCE = "the member has another instance id, or none"


def validation_error(state: State, command: ConsumerHeartbeat) -> Rejected | None:
    """Validate the request itself."""
    wrong = _wrong(command, state.limits.groups)
    if wrong:
        return Rejected(Rejection.INVALID_REQUEST, wrong)
    topics_max = state.limits.consumers.subscribed_topics_max
    if len(command.topics or ()) > topics_max and state.level >= SUBSCRIBED_TOPICS_LEVEL:
        return Rejected(Rejection.INVALID_REQUEST, f"a member names at most {topics_max} topics: use a pattern")
    if command.assignor is not None and command.assignor not in ASSIGNORS:
        message = f"ServerAssignor {command.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
        return Rejected(Rejection.UNSUPPORTED_ASSIGNOR, message)
    return None


def _wrong(command: ConsumerHeartbeat, limits: GroupLimits) -> str:
    """Kafka's checks with its texts and in its order, then the limits on sizes."""
    epoch = command.member_epoch
    if not command.group_id or not command.member_id:
        return "GroupId can't be empty." if not command.group_id else "MemberId can't be empty."
    if command.instance_id == "" or command.rack_id == "":
        return "InstanceId can't be empty." if command.instance_id == "" else "RackId can't be empty."
    if epoch == JOIN_EPOCH and command.rebalance_timeout_ms == NOT_SET:
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
    subscribed = sum(map(len, command.topics or ())) + len(command.topics or ()) + len(command.pattern or "")
    is_long = len(command.group_id) > limits.group_id_length_max or length > limits.member_names_length_max
    if is_long or subscribed > limits.member_bytes_max:
        return f"a member with names of {length} characters and a subscription of {subscribed}"
    return ""


def pattern_validation_error(state: State, command: ConsumerHeartbeat) -> Rejected | None:
    reason = subscriptions.check_pattern(state, command.pattern or "")
    if not reason:
        return None
    message = f"SubscribedTopicRegex `{command.pattern}` is not a valid regular expression: {reason}."
    return Rejected(Rejection.INVALID_PATTERN, message)


def validation_error_to_new(state: State, group: Group | None, command: ConsumerHeartbeat) -> Rejected | None:
    """Why this heartbeat can make no consumer group."""
    if command.group_id in state.share_groups:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} is not a consumer group.")
    if command.member_epoch != JOIN_EPOCH:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} not found.")
    if group is None and not is_room_for_group(state, number_of(state, command.principal)):
        return Rejected(Rejection.OVERLOADED, "no room for another group")
    if group is not None and (group.streams is not None or not can_upgrade(state, group)):
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id} is not a consumer group.")
    known = None if group is None else group.members.get(command.member_id)
    if known is not None and command.instance_id not in (None, known.group_instance_id):
        return Rejected(Rejection.INVALID_REQUEST, _OTHER_INSTANCE)
    return validation_error_to_member(state, group, command)


def validation_error_to_member(state: State, group: Group | None, command: ConsumerHeartbeat) -> Rejected | None:
    """Why no new member can join with this heartbeat."""
    if group is not None:
        count = len(group.members) if group.consumer is None else len(group.consumer.members)
        members_max = state.limits.consumers.consumer_members_max
        if count >= members_max:
            message = f"The consumer group has reached its maximum capacity of {members_max} members."
            return Rejected(Rejection.GROUP_FULL, message)
    owner = number_of(state, command.principal)
    subscribed_bytes = subscription_bytes(state, command.topics or (), command.pattern or "")
    size_bytes = max(state.limits.groups.member_bytes_max, subscribed_bytes)
    if not is_room_for_member(state, members_of(group), size_bytes, 0, owner):
        return Rejected(Rejection.OVERLOADED, "no room for another member")
    return pattern_validation_error(state, command)


def subscription_validation_error(
    state: State, group: Group, member: ConsumerMember, command: ConsumerHeartbeat
) -> Rejected | None:
    """Why the member cannot have the subscription of the heartbeat."""
    topics = member.topics if command.topics is None else command.topics
    pattern = member.pattern if command.pattern is None else command.pattern
    before_bytes = subscription_bytes(state, member.topics, member.pattern)
    after_bytes = subscription_bytes(state, topics, pattern)
    is_growing = state.level >= GROUP_SIZES_LEVEL and after_bytes > before_bytes
    if is_growing and not is_room_for_member(state, members_of(group), after_bytes, before_bytes, member.owner):
        return Rejected(Rejection.OVERLOADED, "no room for a larger subscription")
    return pattern_validation_error(state, command)


def sender_rejection(group: Group, member: ConsumerMember | None, command: ConsumerHeartbeat) -> Rejected | None:
    """Why the sender is not the member that it names, and cannot become it."""
    is_join = command.member_epoch == JOIN_EPOCH
    if member is None:
        if not is_join:
            return Rejected(Rejection.UNKNOWN_MEMBER, f"Member {command.member_id} is not a member of the group.")
        if command.member_id in consumer_of(group).members:
            return Rejected(Rejection.INVALID_REQUEST, _OTHER_INSTANCE)
        return None
    named = f"instance id {command.instance_id}"
    if member.member_id != command.member_id:
        is_free = member.epoch == AWAY or bool(member.protocols)  # a classic member sends no leave at its restart
        if is_join and is_free and command.member_id not in consumer_of(group).members:
            return None
        if is_join:
            message = (
                f"Static member {command.member_id} with {named} cannot join: the id is in use by {member.member_id}."
            )
            return Rejected(Rejection.UNRELEASED_INSTANCE, message)
        return Rejected(Rejection.FENCED_INSTANCE, f"Static member {command.member_id} with {named} was fenced.")
    return None if command.member_epoch <= JOIN_EPOCH else _epoch_rejection(member, command)


def _epoch_rejection(member: ConsumerMember, command: ConsumerHeartbeat) -> Rejected | None:
    """A member may be one epoch behind, since an answer may be lost; then it may own only assigned partitions."""
    epoch = command.member_epoch
    if epoch == member.epoch:
        return None
    owned = owned_partitions(command)
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


def member_of(group: Group, command: ConsumerHeartbeat) -> ConsumerMember | None:
    """The member of the heartbeat: by its instance id if it has one, else by its member id."""
    consumer = consumer_of(group)
    if command.instance_id is not None:
        member_id = consumer.static_members.get(command.instance_id)
        return None if member_id is None else consumer.members[member_id]
    return consumer.members.get(command.member_id)


def owned_partitions(command: ConsumerHeartbeat) -> Partitions | None:
    """The partitions that the member reports as owned; None for no report."""
    if command.owned is None:
        return None
    return {each.topic_id: each.partitions for each in command.owned}
