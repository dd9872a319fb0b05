"""States of consumer groups, as in Kafka's GroupCoordinator (KIP-848): epochs, targets, reconciliation.

The group's epoch grows whenever its members, their subscriptions, or the subscribed topics change; then the group is
Assigning. The next heartbeat of any member has an assignor compute all targets for that epoch; then the group is
Reconciling. Each member now moves to its target by its own heartbeats:

    RECONCILED, AWAITING -- the target lacks partitions that it has ---> REVOKING, at its old epoch
    any -- it has nothing to give back, or has given it back ----------> the target's epoch and the partitions of its
                                                                         target that are free: RECONCILED if these are
                                                                         all, AWAITING if not

Targets are made `group.consumer.assignment.interval.ms` apart, so that members that join together get one assignment
(KIP-1263). Until then a new member has no partitions, at the epoch of the current target.

When all members are RECONCILED the group is Stable. A member that does not give back within its rebalance timeout is
removed. The functions here leave the group's deadline and state to `settle`, which every command that changed a group
calls last.
"""

from collections.abc import Sequence

import msgspec

from penstock.contracts.commands import TopicPartitions
from penstock.contracts.configs.groups import consumer_config
from penstock.contracts.configs.members import (
    CONSUMER_ASSIGNMENT_INTERVAL,
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
)
from penstock.contracts.levels import ASSIGNMENT_INTERVAL_LEVEL, SUBSCRIBED_TOPICS_LEVEL
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
from penstock_sequencer.core.state.group_sizes import count_member, names_bytes
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES, PARTITION_BYTES, SUBSCRIBED_TOPIC_BYTES


class Progress(msgspec.Struct, frozen=True):
    """How far a member is on the way to its target."""

    state: int
    epoch: int
    assigned: Partitions
    revoking: Partitions


def progress_of(member: ConsumerMember) -> Progress:
    """The member's progress now."""
    return Progress(member.state, member.epoch, member.assigned, member.revoking)


def next_progress(consumer: ConsumerGroup, member: ConsumerMember, owned: Partitions | None) -> Progress:
    """The progress that the member may make now; `owned` are the partitions that it reports, None for no report."""
    if member.state == REVOKING and _owns(owned, member.revoking):
        return progress_of(member)
    if member.state == RECONCILED and member.epoch == consumer.assignment_epoch:
        return progress_of(member)
    kept: Partitions = {}
    given_back: Partitions = {}
    for topic_id, numbers in member.assigned.items():
        wanted = set(member.target.get(topic_id, ()))
        _put(kept, topic_id, [number for number in numbers if number in wanted])
        _put(given_back, topic_id, [number for number in numbers if number not in wanted])
    if given_back and _owns(owned, given_back):
        return Progress(REVOKING, member.epoch, kept, given_back)
    return _advanced(consumer, member)


def _advanced(consumer: ConsumerGroup, member: ConsumerMember) -> Progress:
    """At the target's epoch, with the partitions of it that no other member has."""
    assigned: Partitions = {}
    is_waiting = False
    for topic_id, numbers in member.target.items():
        owners = consumer.tables.owners.get(topic_id, {})
        free = [number for number in numbers if owners.get(number, member.member_id) == member.member_id]
        is_waiting = is_waiting or len(free) < len(numbers)
        _put(assigned, topic_id, free)
    return Progress(AWAITING if is_waiting else RECONCILED, consumer.assignment_epoch, assigned, {})


def _put(partitions: Partitions, topic_id: bytes, numbers: list[int]) -> None:
    if numbers:
        partitions[topic_id] = numbers


def _owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member still has some of these; without a report it has them all."""
    if owned is None:
        return True
    return any(not set(owned.get(topic_id, ())).isdisjoint(numbers) for topic_id, numbers in partitions.items())


def apply_progress(state: State, group: Group, member: ConsumerMember, progress: Progress) -> None:
    """Give the member this progress from now on."""
    consumer = consumer_of(group)
    if progress.assigned != member.assigned or progress.revoking != member.revoking:
        release_partitions(consumer, member)
        member.assigned, member.revoking = progress.assigned, progress.revoking
        own_partitions(consumer, member)
    if progress.epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, progress.epoch
    if progress.state == REVOKING and member.state != REVOKING:
        member.due_ms = 0
    member.state = progress.state
    record_due(state, consumer, member)


def record_due(state: State, consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """Set the member's deadline if the group waits for it; the timeout begins when the wait begins."""
    is_behind = bool(member.protocols) and (not member.synced or member.epoch < consumer.epoch)
    if member.state != REVOKING and not is_behind:
        member.due_ms = 0
    elif not member.due_ms:
        member.due_ms = state.clock_ms + member.rebalance_timeout_ms
    record_member(consumer, member)


def record_member(consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """Update the tables with the member, except for its partitions."""
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
    """Record the member as owner of its partitions, those to give back too."""
    for partitions in (member.assigned, member.revoking):
        for topic_id, numbers in partitions.items():
            owners = consumer.tables.owners.setdefault(topic_id, {})
            for number in numbers:
                assert owners.setdefault(number, member.member_id) == member.member_id, "a partition has one owner"


def release_partitions(consumer: ConsumerGroup, member: ConsumerMember) -> None:
    """Record that the member's partitions have no owner."""
    for partitions in (member.assigned, member.revoking):
        for topic_id, numbers in partitions.items():
            owners = consumer.tables.owners[topic_id]
            for number in numbers:
                del owners[number]
            if not owners:
                del consumer.tables.owners[topic_id]


def consumer_of(group: Group) -> ConsumerGroup:
    """The consumer part of a group that is known to be a consumer group."""
    assert group.consumer is not None, "the group is a consumer group"
    return group.consumer


def bump_epoch(state: State, group: Group, changes: int = 1) -> None:
    """Record changes on which the target depends; each one raises the epoch."""
    consumer = consumer_of(group)
    consumer.epoch += changes
    for member_id in list(consumer.tables.classic):
        record_due(state, consumer, consumer.members[member_id])


def is_target_due(state: State, group: Group, now_ms: int) -> bool:
    """Whether a new target must be made now, by the sender's clock.

    A sender's clock far before the last target does not delay the next one: the clock of that target was wrong.
    """
    consumer = consumer_of(group)
    if consumer.assignment_epoch == consumer.epoch:
        return False
    if state.level < ASSIGNMENT_INTERVAL_LEVEL or consumer.tables.classic:  # classic members are answered at once
        return True
    interval_ms = _config(state, group.group_id, CONSUMER_ASSIGNMENT_INTERVAL)
    return not consumer.assigned_ms or abs(now_ms - consumer.assigned_ms) >= interval_ms


def update_target(state: State, group: Group) -> None:
    """Make all members' targets for the group's epoch, unless they exist."""
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
        member.target = target  # also if it is equal: the order of its topics affects the next target
        if is_other:
            weigh(state, member)
    consumer.assignment_epoch = consumer.epoch
    consumer.tables.settled.clear()


def record_assigned(state: State, consumer: ConsumerGroup, now_ms: int) -> None:
    """Record the time at which a target was made."""
    if state.level >= ASSIGNMENT_INTERVAL_LEVEL:
        consumer.assigned_ms = now_ms


def narrow_target(state: State, member: ConsumerMember) -> None:
    """Remove topics from the member's target that it no longer subscribes, until the next target."""
    names = subscriptions.subscribed_names(state, member)
    topic_ids = [state.topics[name].topic_id for name in names if name in state.topics]
    target = {topic_id: member.target[topic_id] for topic_id in topic_ids if topic_id in member.target}
    if len(target) < len(member.target):
        member.target = target
        member.state = AWAITING if member.state == RECONCILED else member.state


def _chosen_assignor(consumer: ConsumerGroup) -> str:
    """The assignor that most members name; of equals, the first in Kafka's list."""
    votes = dict.fromkeys(ASSIGNORS, 0)
    for member in consumer.members.values():
        if member.assignor:
            votes[member.assignor] += 1
    return max(votes, key=votes.__getitem__)


def enter_member(state: State, group: Group, member: ConsumerMember) -> None:
    """Add the member to the group and to the tables."""
    consumer = consumer_of(group)
    former = consumer.members.get(member.member_id)
    if former is not None:  # joins are rejected in this case; without this, the former's rows would stay for ever
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
    """Fill the tables that are derived from a group's members, after a snapshot was read."""
    consumer = consumer_of(group)
    for member in consumer.members.values():
        own_partitions(consumer, member)
        record_member(consumer, member)
        subscriptions.subscribe(state, group.group_id, member.topics, member.pattern)


def leave_member(state: State, group: Group, member: ConsumerMember) -> None:
    """Remove the member from the group and from the tables; its partitions are free."""
    consumer = consumer_of(group)
    del consumer.members[member.member_id]
    if member.instance_id is not None:
        del consumer.static_members[member.instance_id]
    release_partitions(consumer, member)
    for table in (consumer.tables.due_ms, consumer.tables.settled, consumer.tables.classic):
        table.pop(member.member_id, None)
    subscriptions.unsubscribe(state, group.group_id, member.topics, member.pattern)
    count_member(state, member, 0)
    record_departed(state, group.group_id, member.member_id)


def take_over(state: State, group: Group, former: ConsumerMember, member: ConsumerMember) -> None:
    """A static member that returns under another id, and is not added yet, gets its former partitions."""
    assigned, target = former.assigned, former.target
    leave_member(state, group, former)
    member.assigned, member.target = assigned, target


def remove_members(state: State, group: Group, members: Sequence[ConsumerMember]) -> None:
    """Remove the members; their partitions go to other members."""
    for member in members:
        leave_member(state, group, member)
    if members:
        bump_epoch(state, group, len(members))


def weigh(state: State, member: ConsumerMember) -> None:
    """Update the member's size after a change."""
    held = sum(map(len, (*member.assigned.values(), *member.revoking.values(), *member.target.values())))
    subscribed_bytes = subscription_bytes(state, member.topics, member.pattern)
    subscribed_bytes += sum(len(each.name) + len(each.metadata) for each in member.protocols)
    size_bytes = MEMBER_OVERHEAD_BYTES + subscribed_bytes + held * PARTITION_BYTES
    size_bytes += names_bytes(state, member.member_id, member.instance_id, member.rack_id)
    size_bytes += names_bytes(state, member.client_id, member.client_host)
    count_member(state, member, size_bytes)


def subscription_bytes(state: State, topics: Sequence[str], pattern: str) -> int:
    """The part of a member's size that its subscription takes: each topic has an entry in a table, too."""
    overhead_bytes = SUBSCRIBED_TOPIC_BYTES if state.level >= SUBSCRIBED_TOPICS_LEVEL else 0
    return sum(map(len, topics)) + len(topics) * overhead_bytes + len(pattern)


def settle(state: State, group: Group, changes: Changes) -> None:
    """Update the group's deadline and state, and report it as changed, so that waiting members read it again."""
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


def topic_partitions(partitions: Partitions) -> list[TopicPartitions]:
    """Partitions in the form in which members get them."""
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in partitions.items()]


def heartbeat_interval_ms(state: State, group: Group, member: ConsumerMember, now_ms: int) -> int:
    """The time to the member's next heartbeat: shorter while it lacks partitions or a new target is near.

    Clients take the interval from each answer. librdkafka, too, waits no longer than this for its next heartbeat.
    """
    consumer = consumer_of(group)
    interval_ms = _config(state, group.group_id, CONSUMER_HEARTBEAT_INTERVAL)
    limits = state.limits.consumers
    is_moving = 0 <= now_ms - consumer.assigned_ms < limits.consumer_moving_ms
    is_moving = is_moving or consumer.assignment_epoch < consumer.epoch
    is_soon = is_moving or member.state != RECONCILED
    return min(interval_ms, limits.consumer_heartbeat_soon_ms) if is_soon else interval_ms


def session_timeout_ms(state: State, group: Group, member: ConsumerMember) -> int:
    """How long the member may be silent."""
    return member.session_timeout_ms or _config(state, group.group_id, CONSUMER_SESSION_TIMEOUT)


def _config(state: State, group_id: str, name: str) -> int:
    return consumer_config(name, state.group_configs.get(group_id, {}), state.cluster_configs)


def commit_rejection(consumer: ConsumerGroup, generation: int, member_id: str, instance_id: str | None) -> Rejection:
    """Why the sender may not commit or read offsets as a member of the consumer group now."""
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
