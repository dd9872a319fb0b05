"""Conversion of running groups from the classic protocol to the new one and back; classic members of consumer groups.

A classic group becomes a consumer group with its first member of the new protocol. Its members keep their partitions,
with the generation as their epoch. They still use JoinGroup, SyncGroup and Heartbeat. A change that other members get
by their heartbeat makes them join again. Their JoinGroup reports the partitions that they own. When the last member of
the new protocol is gone, the rest is a classic group again, and rebalances. Kafka does the same with
`group.consumer.migration.policy=bidirectional`.
"""

from penstock.contracts.levels import HELD_GOES_OVER_LEVEL, SUBSCRIBED_TOPICS_LEVEL
from penstock_sequencer.core.groups.assignment import classic_subscription_codec
from penstock_sequencer.core.groups.assignment.classic_subscription_codec import (
    NAMES_UNLIMITED,
    PROTOCOL_TYPE,
    Malformed,
    Subscription,
)
from penstock_sequencer.core.groups.classic_group import (
    count_protocols,
    metadata,
    place_static,
    prepare_rebalance,
    select_protocol,
    settle as settle_classic,
    weigh,
)
from penstock_sequencer.core.groups.consumer_group import bump_epoch, consumer_of, enter_member, leave_member
from penstock_sequencer.core.groups.departed_members import record_joined
from penstock_sequencer.core.state.cluster import EMPTY, STABLE, Changes, Group, Member, State
from penstock_sequencer.core.state.consumer_group import AWAITING, REVOKING, ConsumerGroup, ConsumerMember, Partitions
from penstock_sequencer.core.state.group_sizes import count_member


def can_upgrade(state: State, group: Group) -> bool:
    """Whether the classic group may become a consumer group: all its members speak Kafka's "consumer" protocol.

    From SUBSCRIBED_TOPICS_LEVEL on, its members do not name more topics than a group may name.
    """
    if group.state == EMPTY and not group.members:
        return True
    if group.protocol_type != PROTOCOL_TYPE:
        return False
    names_left = group_names_max(state)
    try:
        for member in group.members.values():
            subscription = _subscription(group, member, min(member_names_max(state), names_left))
            names_left -= len(subscription.topics)
            names_left -= len(classic_subscription_codec.read_assignment(member.assignment, names_left))
    except Malformed:
        return False
    return True


def member_names_max(state: State) -> int:
    """How many names of topics the subscription of one classic member may have."""
    is_limited = state.level >= SUBSCRIBED_TOPICS_LEVEL
    return state.limits.consumers.subscribed_topics_max if is_limited else NAMES_UNLIMITED


def group_names_max(state: State) -> int:
    """How many names of topics all classic members of one group may have, to be read at once."""
    is_limited = state.level >= SUBSCRIBED_TOPICS_LEVEL
    return state.limits.consumers.classic_names_max if is_limited else NAMES_UNLIMITED


def _subscription(group: Group, member: Member, names_max: int = NAMES_UNLIMITED) -> Subscription:
    data = metadata(group, member) or member.protocols[0].metadata
    return classic_subscription_codec.read_subscription(data, names_max)


def upgrade(state: State, group: Group) -> None:
    """Convert the classic group, before another member joins; members that wait for an answer must join again."""
    members = [_upgraded(state, group, member) for member in group.members.values()]
    for classic in group.members.values():
        count_member(state, classic, 0)
    _remove_classic(group)
    epoch = group.generation
    group.consumer = ConsumerGroup(epoch, epoch, "", {}, {})
    for member in members:
        _drop_owned_twice(group.consumer, member)
        enter_member(state, group, member)
    if members:
        bump_epoch(state, group)


def _remove_classic(group: Group) -> None:
    group.members, group.static_members, group.protocol_counts, group.pending = {}, {}, {}, {}
    group.fenced, group.static_since = {}, {}
    group.protocol_type, group.protocol, group.leader = PROTOCOL_TYPE, "", ""
    group.join_deadline_ms = group.sync_deadline_ms = group.initial_delay_ms = group.initial_remaining_ms = 0
    group.newcomer = False


def _upgraded(state: State, group: Group, member: Member) -> ConsumerMember:
    subscription = _subscription(group, member)
    assigned = partitions_of(state, classic_subscription_codec.read_assignment(member.assignment))
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=sorted(dict.fromkeys(subscription.topics)),
        pattern="",
        assignor="",
        active_sequence=member.active_sequence,
        changed_sequence=state.sequence,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
        target=assigned,
        session_timeout_ms=member.session_timeout_ms,
        protocols=member.protocols,
        owner=member.owner,
    )


def _drop_owned_twice(consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """Keep one owner for each partition: a leader may have assigned one twice."""
    assigned: Partitions = {}
    for topic_id, numbers in member.assigned.items():
        owners = consumer.tables.owners.get(topic_id, {})
        free = [number for number in numbers if number not in owners]
        if free:
            assigned[topic_id] = free
    member.assigned = member.target = assigned


def partitions_of(state: State, by_name: dict[str, list[int]]) -> Partitions:
    """The existing partitions of these, by topic id."""
    found: Partitions = {}
    for name, numbers in by_name.items():
        topic = state.topics.get(name)
        known = [] if topic is None else sorted(each for each in set(numbers) if 0 <= each < len(topic.partitions))
        if topic is not None and known:
            found[topic.topic_id] = known
    return found


def downgrade_if_due(state: State, group: Group, changes: Changes) -> None:
    """Convert the group back if all its members speak the classic protocol; they rebalance."""
    consumer = group.consumer
    if consumer is None or not consumer.members or not all(each.protocols for each in consumer.members.values()):
        return
    members = list(consumer.members.values())
    # As in Kafka, the generation ignores the epoch of this change; members that were up to date still are.
    group.generation = max(group.generation, *(each.epoch for each in members))
    leave_new_protocol(state, group)
    group.state, group.leader = STABLE, members[0].member_id
    for each in members:
        group.members[each.member_id] = _downgraded(each)
        if each.instance_id is not None:
            place_static(state, group, each.instance_id, each.member_id)
        count_protocols(group, group.members[each.member_id], 1)
    group.protocol = select_protocol(group)
    for each in members:
        member = group.members[each.member_id]
        # Kafka uses the target. A member that joins a consumer group again at once could then share a partition.
        has = each.target if state.level < HELD_GOES_OVER_LEVEL else _held(each)
        member.assignment = assignment_of(state, each, has)
        weigh(state, member)
    prepare_rebalance(state, group)
    settle_classic(state, group, changes)


def _held(member: ConsumerMember) -> Partitions:
    """The member's partitions, also those that it still has to give back."""
    held = {topic_id: list(numbers) for topic_id, numbers in member.assigned.items()}
    for topic_id, numbers in member.revoking.items():
        held[topic_id] = sorted([*held.get(topic_id, ()), *numbers])
    return held


def leave_new_protocol(state: State, group: Group) -> None:
    """Make the group a classic one without members; its generation continues from its epoch."""
    consumer = consumer_of(group)
    for member in list(consumer.members.values()):
        leave_member(state, group, member)
        record_joined(state, group.group_id, member.member_id)  # it did not leave, it is converted
    group.state, group.consumer = EMPTY, None
    group.protocol_type = PROTOCOL_TYPE


def _downgraded(member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        active_sequence=member.active_sequence,
        synced=True,
    )


def assignment_of(state: State, member: ConsumerMember, partitions: Partitions) -> bytes:
    """Partitions in the form in which a classic member gets them, in its protocol version."""
    version = classic_subscription_codec.spoken_version(member.protocols[0].metadata)
    named = [
        (state.topics_by_id[topic_id].name, numbers)
        for topic_id, numbers in partitions.items()
        if topic_id in state.topics_by_id
    ]
    return classic_subscription_codec.write_assignment(version, sorted(named))


def must_join_again(consumer: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a classic member must join: for a new target, to give back, or to get partitions that became free."""
    if member.epoch < consumer.epoch or member.state == REVOKING:
        return True
    return member.state == AWAITING and _is_all_free(consumer, member)


def _is_all_free(consumer: ConsumerGroup, member: ConsumerMember) -> bool:
    return all(
        consumer.tables.owners.get(topic_id, {}).get(number, member.member_id) == member.member_id
        for topic_id, numbers in member.target.items()
        for number in numbers
    )
