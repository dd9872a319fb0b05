"""States of streams groups, as in Kafka's GroupCoordinator (KIP-1071): epochs, targets, reconciliation.

The group's epoch grows with each change of its members, topics, or number of standby tasks. Then the group is
Assigning. The next heartbeat of any member has the assignor compute all targets for that epoch. While topics
of the topology are missing or wrong, the group is NotReady, and targets have no tasks. A member moves to its target by
its own heartbeats (`progress.py`).

Targets are made `streams.assignment.interval.ms` apart. The first member of an empty group waits
`streams.initial.rebalance.delay.ms` for others. The functions here leave the group's deadline and state to `settle`,
which every command that changed a group calls last.
"""

from penstock.contracts.commands import EndpointPartitions, OwnedTasks, StreamsStatus
from penstock.contracts.configs.groups import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_DELAY,
    STREAMS_SESSION_TIMEOUT,
    STREAMS_STANDBY_REPLICAS,
    streams_config,
)
from penstock.contracts.configs.members import ASSIGNMENT_INTERVAL_CEILING_MS, INITIAL_DELAY_CEILING_MS
from penstock.contracts.levels import TASK_OFFSETS_LEVEL
from penstock_sequencer.core.groups.assignment import subscriptions
from penstock_sequencer.core.groups.departed_members import record_departed, record_joined
from penstock_sequencer.core.groups.streams.assignor import Worker, assign
from penstock_sequencer.core.groups.streams.progress import Progress, task_ids
from penstock_sequencer.core.groups.streams.topology import configure, required_topics, source_names
from penstock_sequencer.core.groups.timers import record_emptied, record_idle, set_deadline
from penstock_sequencer.core.state.cluster import EMPTY, STABLE, Changes, Group, State
from penstock_sequencer.core.state.consumer_group import ASSIGNING, AWAITING, RECONCILED, RECONCILING, REVOKING
from penstock_sequencer.core.state.group_sizes import count_member, names_bytes, topology_bytes
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES, PARTITION_BYTES
from penstock_sequencer.core.state.streams_group import Configured, OwnedActive, StreamsGroup, StreamsMember, Tasks

NOT_READY = "NotReady"
PROTOCOL_TYPE = "streams"
ASSIGNOR = "sticky"
_DELAY_CEILING_MS = max(INITIAL_DELAY_CEILING_MS, ASSIGNMENT_INTERVAL_CEILING_MS)


def streams_of(group: Group) -> StreamsGroup:
    """The streams part of a group that is known to be a streams group."""
    assert group.streams is not None, "the group is a streams group"
    return group.streams


def config_of(state: State, group_id: str, name: str) -> int:
    """The value in force of a configuration of the group."""
    return streams_config(name, state.group_configs.get(group_id, {}), state.cluster_configs)


def configured_of(state: State, streams: StreamsGroup) -> Configured:
    """The numbers and the status that follow from the group's topology and the existing topics."""
    if streams.tables.configured is None:
        streams.tables.configured = configure(state, streams.topology)
    return streams.tables.configured


def enter_topology(state: State, group: Group, streams: StreamsGroup) -> None:
    """Make the group a streams group with a topology and no members."""
    group.streams, group.protocol_type = streams, PROTOCOL_TYPE
    streams.epoch = streams.assignment_epoch = max(streams.epoch, group.generation)
    state.group_bytes += topology_bytes(streams.topology, state.limits.streams.topology_item_bytes)


def bump_epoch(streams: StreamsGroup) -> None:
    """Note a change on which the target depends."""
    streams.epoch += 1


def change_topics(group: Group) -> None:
    """Note that topics of the topology came, went or grew."""
    streams = streams_of(group)
    streams.tables.configured = None
    bump_epoch(streams)


def enter_member(state: State, group: Group, member: StreamsMember) -> None:
    """Add the member to the group and to the tables."""
    streams = streams_of(group)
    if not streams.members:
        streams.tables.configured = None  # an empty group does not follow its topics
    streams.members[member.member_id] = member
    record_joined(state, group.group_id, member.member_id)
    if member.instance_id is not None:
        streams.static_members[member.instance_id] = member.member_id
    change_process(streams, member, member.process_id)
    record_member(streams, member)
    subscriptions.subscribe(state, group.group_id, list(required_topics(streams.topology)), "")
    weigh(state, member)


def enter_group(state: State, group: Group) -> None:
    """Fill the tables that are derived from a group's members, after a snapshot was read."""
    streams = streams_of(group)
    for member in streams.members.values():
        own_tasks(streams, member)
        record_member(streams, member)
        subscriptions.subscribe(state, group.group_id, list(required_topics(streams.topology)), "")


def leave_member(state: State, group: Group, member: StreamsMember) -> None:
    """Remove the member from the group and from the tables; its tasks are free."""
    streams = streams_of(group)
    del streams.members[member.member_id]
    if member.instance_id is not None:
        del streams.static_members[member.instance_id]
    release_tasks(streams, member)
    for table in (streams.tables.due_ms, streams.tables.settled):
        table.pop(member.member_id, None)
    subscriptions.unsubscribe(state, group.group_id, list(required_topics(streams.topology)), "")
    count_member(state, member, 0)
    record_departed(state, group.group_id, member.member_id)


def remove_member(state: State, group: Group, member: StreamsMember) -> None:
    """Remove the member; its tasks go to other members. An empty group has no target to wait for, as in Kafka."""
    streams = streams_of(group)
    leave_member(state, group, member)
    bump_epoch(streams)
    if member.endpoint is not None:
        streams.endpoint_epoch += 1
    if not streams.members:
        streams.assignment_epoch, streams.shutdown_by, streams.next_target_ms = streams.epoch, "", 0


def apply_progress(state: State, streams: StreamsGroup, member: StreamsMember, progress: Progress) -> None:
    """Give the member this progress from now on."""
    release_tasks(streams, member)
    member.active, member.standby = progress.active, progress.standby
    member.revoking_active, member.revoking_standby = progress.revoking_active, progress.revoking_standby
    own_tasks(streams, member)
    is_new_step = member.state != REVOKING or progress.epoch != member.epoch
    if progress.epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, progress.epoch
    member.state = progress.state
    if member.state != REVOKING:
        member.due_ms = 0
    elif is_new_step or not member.due_ms:
        member.due_ms = state.clock_ms + member.rebalance_timeout_ms
    record_member(streams, member)


def change_process(streams: StreamsGroup, member: StreamsMember, process_id: str) -> None:
    """Move the member, which owns no tasks in the tables now, to a process. It loses standby tasks that this has."""
    member.process_id = process_id
    for tasks in (member.standby, member.revoking_standby):
        for subtopology in list(tasks):
            owners = streams.tables.standby_owners.get(subtopology, {})
            free = [number for number in tasks[subtopology] if process_id not in owners.get(number, {})]
            if len(free) < len(tasks[subtopology]):
                member.state = AWAITING if member.state == RECONCILED else member.state
            tasks[subtopology] = free
            if not free:
                del tasks[subtopology]
    if member.state == REVOKING and not (member.revoking_active or member.revoking_standby):
        member.state = AWAITING  # it has lost all that it was to give back
    own_tasks(streams, member)


def record_member(streams: StreamsGroup, member: StreamsMember) -> None:
    """Update the tables with the member, except for its tasks."""
    tables, member_id = streams.tables, member.member_id
    if member.due_ms:
        tables.due_ms[member_id] = member.due_ms
    else:
        tables.due_ms.pop(member_id, None)
    if member.state == RECONCILED and member.epoch == streams.assignment_epoch:
        tables.settled[member_id] = None
    else:
        tables.settled.pop(member_id, None)


def own_tasks(streams: StreamsGroup, member: StreamsMember) -> None:
    """Record the member as owner of its tasks, those to give back too."""
    tables = streams.tables
    for active in (member.active, member.revoking_active):
        for subtopology, epochs in active.items():
            owners = tables.active_owners.setdefault(subtopology, {})
            for number in epochs:
                assert owners.setdefault(number, member.member_id) == member.member_id, "an active task has one owner"
    for standby in (member.standby, member.revoking_standby):
        for subtopology, numbers in standby.items():
            processes = tables.standby_owners.setdefault(subtopology, {})
            for number in numbers:
                owner = processes.setdefault(number, {}).setdefault(member.process_id, member.member_id)
                assert owner == member.member_id, "a process has a standby task once"


def release_tasks(streams: StreamsGroup, member: StreamsMember) -> None:
    """Record that the member's tasks have no owner."""
    tables = streams.tables
    for active in (member.active, member.revoking_active):
        for subtopology, epochs in active.items():
            owners = tables.active_owners[subtopology]
            for number in epochs:
                del owners[number]
            if not owners:
                del tables.active_owners[subtopology]
    for standby in (member.standby, member.revoking_standby):
        for subtopology, numbers in standby.items():
            processes = tables.standby_owners[subtopology]
            for number in numbers:
                del processes[number][member.process_id]
                if not processes[number]:
                    del processes[number]
            if not processes:
                del tables.standby_owners[subtopology]


def delay_target(state: State, group: Group, now_ms: int) -> None:
    """Let the first member of an empty group wait for others."""
    delay_ms = config_of(state, group.group_id, STREAMS_INITIAL_DELAY)
    streams_of(group).next_target_ms = now_ms + delay_ms if delay_ms else 0


def is_delayed(streams: StreamsGroup, now_ms: int) -> bool:
    """Whether a new target must wait, by the sender's clock. A sender with a far too slow clock does not wait."""
    return 0 < streams.next_target_ms - now_ms <= _DELAY_CEILING_MS


def is_target_due(streams: StreamsGroup, now_ms: int) -> bool:
    """Whether a new target must be made now."""
    return streams.assignment_epoch < streams.epoch and not is_delayed(streams, now_ms)


def update_target(state: State, group: Group, now_ms: int) -> None:
    """Make all members' targets for the group's epoch."""
    streams = streams_of(group)
    configured = configured_of(state, streams)
    # While topics are missing or wrong, the targets are empty.
    counts = configured.tasks if configured.status is None else {}
    stateful = {each.subtopology_id: None for each in streams.topology.subtopologies if each.changelog_topics}
    offsets_max = _offsets_read_max(state, streams)
    workers = {member_id: _worker(member, offsets_max) for member_id, member in streams.members.items()}
    for member_id, tasks in assign(counts, stateful, workers, streams.standby_replicas).items():
        member = streams.members[member_id]
        member.target_active, member.target_standby = _tasks(tasks.active), _tasks(tasks.standby)
        weigh(state, member)
    streams.assignment_epoch = streams.epoch
    streams.next_target_ms = now_ms + config_of(state, group.group_id, STREAMS_ASSIGNMENT_INTERVAL)
    streams.tables.settled.clear()


def _offsets_read_max(state: State, streams: StreamsGroup) -> int | None:
    """How many offsets of each member the assignor reads; None for all. Members may report far more than tasks."""
    most = state.limits.streams.task_offsets_read_max
    reported = sum(len(member.task_offsets) for member in streams.members.values())
    return most // len(streams.members) if state.level >= TASK_OFFSETS_LEVEL and reported > most else None


def _worker(member: StreamsMember, offsets_max: int | None) -> Worker:
    active = {subtopology: list(epochs) for subtopology, epochs in member.active.items()}
    offsets = {(each.subtopology_id, each.partition): each.offset for each in member.task_offsets[:offsets_max]}
    return Worker(member.process_id, active, member.standby, offsets)


def _tasks(tasks: list[tuple[str, int]]) -> Tasks:
    found: Tasks = {}
    for subtopology, number in sorted(tasks):
        found.setdefault(subtopology, []).append(number)
    return found


def weigh(state: State, member: StreamsMember) -> None:
    """Update the member's size after a change."""
    limits = state.limits.streams
    tasks = (member.active, member.standby, member.revoking_active, member.revoking_standby)
    held = sum(
        len(numbers) for each in (*tasks, member.target_active, member.target_standby) for numbers in each.values()
    )
    size_bytes = MEMBER_OVERHEAD_BYTES + held * PARTITION_BYTES
    size_bytes += limits.task_offset_bytes * (len(member.task_offsets) + len(member.task_end_offsets))
    size_bytes += names_bytes(state, member.member_id, member.instance_id, member.rack_id)
    size_bytes += names_bytes(state, member.client_id, member.client_host, member.process_id)
    size_bytes += names_bytes(state, *(text for pair in member.client_tags for text in pair))
    count_member(state, member, size_bytes)


def settle(state: State, group: Group, changes: Changes) -> None:
    """Update the group's deadline and state, and report it as changed."""
    streams = streams_of(group)
    set_deadline(state, group.group_id, min(streams.tables.due_ms.values(), default=0))
    was_empty, group.state = group.state == EMPTY, _state(state, streams)
    if group.state == EMPTY and not was_empty:
        record_emptied(state, group)
    group.generation = streams.epoch
    changes.groups[group.group_id] = None
    record_idle(state, group)


def _state(state: State, streams: StreamsGroup) -> str:
    if not streams.members:
        return EMPTY
    if configured_of(state, streams).status is not None:
        return NOT_READY
    if streams.epoch > streams.assignment_epoch:
        return ASSIGNING
    return STABLE if len(streams.tables.settled) == len(streams.members) else RECONCILING


def statuses(state: State, streams: StreamsGroup, member: StreamsMember, now_ms: int) -> list[tuple[int, str]]:
    """The status codes of the member's group with their details, in Kafka's words."""
    found: list[tuple[int, str]] = []
    if member.topology_epoch < streams.topology.epoch:
        detail = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
        found.append((StreamsStatus.STALE_TOPOLOGY, f"{detail}{streams.topology.epoch}."))
    if streams.assignment_epoch < streams.epoch and is_delayed(streams, now_ms):
        found.append(
            (StreamsStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
        )
    status = configured_of(state, streams).status
    if status is not None:
        found.append(status)
    if streams.shutdown_by:
        detail = f"Streams group member {streams.shutdown_by} encountered a fatal error and requested a shutdown "
        found.append((StreamsStatus.SHUTDOWN_APPLICATION, f"{detail}for the entire application."))
    return found


def endpoints(state: State, streams: StreamsGroup) -> list[EndpointPartitions]:
    """The partitions whose state each member with an endpoint has."""
    # Each name once: a client may repeat one as often as the size of a topology allows.
    sources = {each.subtopology_id: dict.fromkeys(source_names(each)) for each in streams.topology.subtopologies}
    return [
        EndpointPartitions(
            *member.endpoint,
            _partitions(state, sources, member.active),
            _partitions(state, sources, member.standby),
        )
        for member in streams.members.values()
        if member.endpoint is not None
    ]


def _partitions(
    state: State, sources: dict[str, dict[str, None]], tasks: OwnedActive | Tasks
) -> list[tuple[str, list[int]]]:
    found: list[tuple[str, list[int]]] = []
    for subtopology, numbers in tasks.items():
        for name in sources[subtopology]:
            topic = state.topics.get(name)
            count = 0 if topic is None else len(topic.partitions)
            found.append((name, [number for number in numbers if number < count]))
    return [(name, numbers) for name, numbers in found if numbers]


def assigned_tasks(member: StreamsMember) -> OwnedTasks:
    """The member's tasks in the form in which it gets them."""
    return OwnedTasks(task_ids(member.active), task_ids(member.standby))


def heartbeat_interval_ms(state: State, group: Group, member: StreamsMember) -> int:
    """The time to the member's next heartbeat: shorter while it waits for topics, tasks or a new target."""
    streams = streams_of(group)
    interval_ms = config_of(state, group.group_id, STREAMS_HEARTBEAT_INTERVAL)
    is_soon = member.state != RECONCILED or member.epoch < streams.epoch or streams.assignment_epoch < streams.epoch
    is_soon = is_soon or configured_of(state, streams).status is not None
    return min(interval_ms, state.limits.streams.streams_heartbeat_soon_ms) if is_soon else interval_ms


def session_timeout_ms(state: State, group_id: str) -> int:
    """How long a member may be silent."""
    return config_of(state, group_id, STREAMS_SESSION_TIMEOUT)


def standby_replicas(state: State, group_id: str) -> int:
    """The number of standby tasks for each task with state."""
    return config_of(state, group_id, STREAMS_STANDBY_REPLICAS)
