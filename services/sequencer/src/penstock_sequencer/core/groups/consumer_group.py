"""Consumer groups' inner life, as Kafka's GroupCoordinator leads it (KIP-848): epochs, targets, reconciliation.

The group's epoch grows whenever members, what they subscribe, or the topics that they subscribe change; then the group
is Assigning. A next heartbeat of any member has an assignor compute everybody's target for that epoch; then the group
is Reconciling, and each member goes its own way by its heartbeats:

    RECONCILED, AWAITING -- the target lacks what it has --------------> REVOKING, at its old epoch
    any -- it has nothing to give back, or has given it back ----------> the target's epoch and, of its target, what no
                                                                         other member has: RECONCILED if that is all,
                                                                         AWAITING if not

Targets are made `group.consumer.assignment.interval.ms` apart, so that members who come together are assigned to once
(KIP-1263): meanwhile who is new has nothing, at the epoch of the target that there is.

When all are RECONCILED the group is Stable. A member that does not give back in its rebalance time-out is out. The
functions here leave deadline and state of the group to `settle`, which every command that touched a group calls last.
"""

import msgspec

from penstock.contracts.commands import TopicPartitions
from penstock.contracts.configs.topics import (
    CONSUMER_ASSIGNMENT_INTERVAL,
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    group_config,
)
from penstock.contracts.levels import ASSIGNMENT_INTERVAL_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.assignment import subscriptions
from penstock_sequencer.core.groups.assignment.assignors import ASSIGNORS, Subscriber, assign
from penstock_sequencer.core.groups.departed_members import record_departed, record_joined
from penstock_sequencer.core.groups.timers import record_emptied, record_idle, set_deadline
from penstock_sequencer.core.state.cluster import EMPTY, STABLE, Changes, Group, State
from penstock_sequencer.core.state.consumer_group import (
    ASSIGNING,
    AWAITING,
    RECONCILED,
    RECONCILING,
    REVOKING,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES, PARTITION_BYTES


class Standing(msgspec.Struct, frozen=True):
    """Where a member is on the way to its target."""

    state: int
    epoch: int
    assigned: Partitions
    revoking: Partitions


def standing_of(member: ConsumerMember) -> Standing:
    """Where the member is now."""
    return Standing(member.state, member.epoch, member.assigned, member.revoking)


def next_standing(consumer: ConsumerGroup, member: ConsumerMember, owned: Partitions | None) -> Standing:
    """Where the member may go now; `owned` is what it says that it has, None if it says nothing."""
    if member.state == REVOKING and _owns(owned, member.revoking):
        return standing_of(member)
    if member.state == RECONCILED and member.epoch == consumer.assignment_epoch:
        return standing_of(member)
    kept: Partitions = {}
    given_back: Partitions = {}
    for topic_id, numbers in member.assigned.items():
        wanted = set(member.target.get(topic_id, ()))
        _put(kept, topic_id, [number for number in numbers if number in wanted])
        _put(given_back, topic_id, [number for number in numbers if number not in wanted])
    if given_back and _owns(owned, given_back):
        return Standing(REVOKING, member.epoch, kept, given_back)
    return _advanced(consumer, member)


def _advanced(consumer: ConsumerGroup, member: ConsumerMember) -> Standing:
    """At the target's epoch, with what nobody else has of it."""
    assigned: Partitions = {}
    is_waiting = False
    for topic_id, numbers in member.target.items():
        owners = consumer.tables.owners.get(topic_id, {})
        free = [number for number in numbers if owners.get(number, member.member_id) == member.member_id]
        is_waiting = is_waiting or len(free) < len(numbers)
        _put(assigned, topic_id, free)
    return Standing(AWAITING if is_waiting else RECONCILED, consumer.assignment_epoch, assigned, {})


def _put(partitions: Partitions, topic_id: bytes, numbers: list[int]) -> None:
    if numbers:
        partitions[topic_id] = numbers


def _owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member still has some of these; who says nothing has them all."""
    if owned is None:
        return True
    return any(not set(owned.get(topic_id, ())).isdisjoint(numbers) for topic_id, numbers in partitions.items())


def take_standing(state: State, group: Group, member: ConsumerMember, standing: Standing) -> None:
    """The member is there from now on."""
    consumer = consumer_of(group)
    if standing.assigned != member.assigned or standing.revoking != member.revoking:
        release_partitions(consumer, member)
        member.assigned, member.revoking = standing.assigned, standing.revoking
        own_partitions(consumer, member)
    if standing.epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, standing.epoch
    if standing.state == REVOKING and member.state != REVOKING:
        member.due_ms = 0
    member.state = standing.state
    record_due(state, consumer, member)


def record_due(state: State, consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """Whether something is awaited of the member; its time begins when that begins."""
    is_behind = bool(member.protocols) and (not member.synced or member.epoch < consumer.epoch)
    if member.state != REVOKING and not is_behind:
        member.due_ms = 0
    elif not member.due_ms:
        member.due_ms = state.clock_ms + member.rebalance_timeout_ms
    record_member(consumer, member)


def record_member(consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """Bring the tables up to date with the member, but for what it has."""
    tables, member_id = consumer.tables, member.member_id
    if member.due_ms:
        tables.due_ms[member_id] = member.due_ms
    else:
        tables.due_ms.pop(member_id, None)
    if member.state == RECONCILED and member.epoch == consumer.assignment_epoch:
        tables.settled[member_id] = None
    else:
        tables.settled.pop(member_id, None)
    if member.protocols:
        tables.classic[member_id] = None
    else:
        tables.classic.pop(member_id, None)


def own_partitions(consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """What the member has, or is to give back, is its own."""
    for partitions in (member.assigned, member.revoking):
        for topic_id, numbers in partitions.items():
            owners = consumer.tables.owners.setdefault(topic_id, {})
            for number in numbers:
                assert owners.setdefault(number, member.member_id) == member.member_id, "a partition has one owner"


def release_partitions(consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """What the member had is nobody's."""
    for partitions in (member.assigned, member.revoking):
        for topic_id, numbers in partitions.items():
            owners = consumer.tables.owners[topic_id]
            for number in numbers:
                del owners[number]
            if not owners:
                del consumer.tables.owners[topic_id]


def consumer_of(group: Group) -> ConsumerGroup:
    """The group's consumer side, where there is one for sure."""
    assert group.consumer is not None, "a consumer group"
    return group.consumer


def bump_epoch(state: State, group: Group) -> None:
    """Something changed that the target depends on."""
    consumer = consumer_of(group)
    consumer.epoch += 1
    for member_id in list(consumer.tables.classic):
        record_due(state, consumer, consumer.members[member_id])


def is_target_due(state: State, consumer: ConsumerGroup, now_ms: int) -> bool:
    """Whether there is to be a new target now, by the clock of who asks.

    Who comes from long before the last target is not made to wait: the clock by which that was made was wrong.
    """
    if consumer.assignment_epoch == consumer.epoch:
        return False
    if state.level < ASSIGNMENT_INTERVAL_LEVEL or consumer.tables.classic:  # classic members are answered at once
        return True
    interval_ms = group_config(CONSUMER_ASSIGNMENT_INTERVAL, state.cluster_configs)
    return not consumer.assigned_ms or abs(now_ms - consumer.assigned_ms) >= interval_ms


def update_target(state: State, group: Group) -> None:
    """Everybody's target for the group's epoch, if there is none yet."""
    consumer = consumer_of(group)
    if consumer.assignment_epoch == consumer.epoch:
        return
    places: dict[tuple[str, ...], int] = {}
    topic_ids: list[list[bytes]] = []
    counts: dict[bytes, int] = {}
    members: dict[str, Subscriber] = {}
    for member_id, member in consumer.members.items():
        key = (member.pattern, *member.topics)
        if key not in places:
            places[key] = len(topic_ids)
            names = subscriptions.subscribed_names(state, member)
            topics = [state.topics[name] for name in names if name in state.topics]
            topic_ids.append([topic.topic_id for topic in topics])
            counts |= {topic.topic_id: len(topic.partitions) for topic in topics}
        members[member_id] = Subscriber(member.instance_id or member_id, places[key], member.target)
    consumer.assignor = _chosen_assignor(consumer)
    sets_max = state.limits.consumers.members_times_sets_max
    for member_id, target in assign(consumer.assignor, members, topic_ids, counts, sets_max).items():
        member = consumer.members[member_id]
        is_other = target != member.target
        member.target = target  # also where it is equal: the order of its topics has a say in the next one
        if is_other:
            weigh(state, member)
    consumer.assignment_epoch = consumer.epoch
    consumer.tables.settled.clear()


def record_assigned(state: State, consumer: ConsumerGroup, now_ms: int) -> None:
    """A target was made at this time."""
    if state.level >= ASSIGNMENT_INTERVAL_LEVEL:
        consumer.assigned_ms = now_ms


def narrow_target(state: State, member: ConsumerMember) -> None:
    """Until there is another target, the member's is without what it does not subscribe any more."""
    names = subscriptions.subscribed_names(state, member)
    topic_ids = [state.topics[name].topic_id for name in names if name in state.topics]
    target = {topic_id: member.target[topic_id] for topic_id in topic_ids if topic_id in member.target}
    if len(target) < len(member.target):
        member.target = target
        member.state = AWAITING if member.state == RECONCILED else member.state


def _chosen_assignor(consumer: ConsumerGroup) -> str:
    """What most members ask for who ask for any; of equals the one that comes first in Kafka's list."""
    votes = dict.fromkeys(ASSIGNORS, 0)
    for member in consumer.members.values():
        if member.assignor:
            votes[member.assignor] += 1
    return max(votes, key=votes.__getitem__)


def enter_member(state: State, group: Group, member: ConsumerMember) -> None:
    """The member is one of the group from now on."""
    consumer = consumer_of(group)
    former = consumer.members.get(member.member_id)
    if former is not None:  # refused before; but were it not, what was the former's would stay in the tables for ever
        leave_member(state, group, former)
    consumer.members[member.member_id] = member
    record_joined(state, group.group_id, member.member_id)
    if member.instance_id is not None:
        consumer.static_members[member.instance_id] = member.member_id
    own_partitions(consumer, member)
    record_member(consumer, member)
    subscriptions.subscribe(state, group.group_id, member.topics, member.pattern)
    weigh(state, member)


def enter_group(state: State, group: Group) -> None:
    """The group, as a snapshot has it, in the tables that are derived from its members."""
    consumer = consumer_of(group)
    for member in consumer.members.values():
        own_partitions(consumer, member)
        record_member(consumer, member)
        subscriptions.subscribe(state, group.group_id, member.topics, member.pattern)


def leave_member(state: State, group: Group, member: ConsumerMember) -> None:
    """The member is none of the group any more; what it had is free."""
    consumer = consumer_of(group)
    del consumer.members[member.member_id]
    if member.instance_id is not None:
        del consumer.static_members[member.instance_id]
    release_partitions(consumer, member)
    for table in (consumer.tables.due_ms, consumer.tables.settled, consumer.tables.classic):
        table.pop(member.member_id, None)
    subscriptions.unsubscribe(state, group.group_id, member.topics, member.pattern)
    state.group_bytes -= member.size_bytes
    member.size_bytes = 0
    record_departed(state, group.group_id, member.member_id)


def take_over(state: State, group: Group, former: ConsumerMember, member: ConsumerMember) -> None:
    """A static member that came again under another id, and is not entered yet, has what its former life had."""
    assigned, target = former.assigned, former.target
    leave_member(state, group, former)
    member.assigned, member.target = assigned, target


def remove_member(state: State, group: Group, member: ConsumerMember) -> None:
    """The member is out, and its partitions go to others."""
    leave_member(state, group, member)
    bump_epoch(state, group)


def weigh(state: State, member: ConsumerMember) -> None:
    """Bring the member's size up to date."""
    held = sum(map(len, (*member.assigned.values(), *member.revoking.values(), *member.target.values())))
    said = sum(map(len, member.topics)) + len(member.pattern)
    said += sum(len(each.name) + len(each.metadata) for each in member.protocols)
    size_bytes = MEMBER_OVERHEAD_BYTES + said + held * PARTITION_BYTES
    state.group_bytes += size_bytes - member.size_bytes
    member.size_bytes = size_bytes


def settle(state: State, group: Group, changes: Changes) -> None:
    """Bring the group's deadline and its state up to date, and have those who wait look at it."""
    consumer = consumer_of(group)
    set_deadline(state, group.group_id, min(consumer.tables.due_ms.values(), default=0))
    was_empty, group.state = group.state == EMPTY, _state(consumer)
    if group.state == EMPTY and not was_empty:
        record_emptied(state, group)
    group.generation = consumer.epoch
    changes.groups[group.group_id] = None
    record_idle(state, group)


def _state(consumer: ConsumerGroup) -> str:
    if not consumer.members:
        return EMPTY
    if consumer.epoch > consumer.assignment_epoch:
        return ASSIGNING
    return STABLE if len(consumer.tables.settled) == len(consumer.members) else RECONCILING


def told(partitions: Partitions) -> list[TopicPartitions]:
    """Partitions as members are told."""
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in partitions.items()]


def heartbeat_interval_ms(state: State, consumer: ConsumerGroup, member: ConsumerMember, now_ms: int) -> int:
    """When the member is to come again: sooner while it has not all of its target, or another one is about to come.

    Clients take the interval from each answer; librdkafka waits no longer for the next one, too.
    """
    interval_ms = group_config(CONSUMER_HEARTBEAT_INTERVAL, state.cluster_configs)
    limits = state.limits.consumers
    is_moving = 0 <= now_ms - consumer.assigned_ms < limits.consumer_moving_ms
    is_moving = is_moving or consumer.assignment_epoch < consumer.epoch
    is_soon = is_moving or member.state != RECONCILED
    return min(interval_ms, limits.consumer_heartbeat_soon_ms) if is_soon else interval_ms


def session_timeout_ms(state: State, member: ConsumerMember) -> int:
    """For how long the member may be silent."""
    return member.session_timeout_ms or group_config(CONSUMER_SESSION_TIMEOUT, state.cluster_configs)


def commit_rejection(consumer: ConsumerGroup, generation: int, member_id: str, instance_id: str | None) -> Rejection:
    """Why whoever this is may not commit or read offsets as a member of the consumer group now."""
    if generation < 0 and not consumer.members:
        return Rejection.NONE
    member = consumer.members.get(member_id)
    if member is None:
        return Rejection.UNKNOWN_MEMBER
    if instance_id is not None and consumer.static_members.get(instance_id, member_id) != member_id:
        return Rejection.FENCED_INSTANCE
    if generation == member.epoch:
        return Rejection.NONE
    return Rejection.ILLEGAL_GENERATION if member.protocols else Rejection.STALE_MEMBER_EPOCH
