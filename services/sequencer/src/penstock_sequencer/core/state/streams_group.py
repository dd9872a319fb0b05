"""Streams groups (KIP-1071), as plain structures; `Group.streams` holds one, beside the group's offsets.

These invariants hold before and after every entry:

 1. An active task that a member has, or must still revoke, belongs to no other member. `active_owners` names that
    member only. A standby task belongs to one member of each process at most.
 2. `previous_epoch` <= `epoch` <= the group's assignment epoch <= the group's epoch, and none of these ever goes back.
    Members that join again, and static members that left for a while (AWAY), are the exceptions.
 3. An active task in `target` at the assignment epoch is in the target of one member.
 4. A member in the state RECONCILED at the assignment epoch has exactly its target.
 5. The epoch of each active task in `assigned` is the assignment epoch at which the member got it.
"""

import msgspec

from penstock.contracts.commands import InternalTopic, TaskOffset, Topology
from penstock_sequencer.core.state.consumer_group import RECONCILED

Tasks = dict[str, list[int]]  # subtopology id -> partitions, ascending
OwnedActive = dict[str, dict[int, int]]  # subtopology id -> partition -> the assignment epoch at which it was assigned
Owners = dict[str, dict[int, str]]  # subtopology id -> partition -> member id


class StreamsMember(msgspec.Struct, eq=False):
    """A member of a streams group: one thread of one process of the application."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: tuple[str, int] | None
    client_tags: list[tuple[str, str]]
    active_sequence: int  # of the last journal entry that proves it was alive
    changed_sequence: int = 0  # of the last entry that changed anything in this member
    epoch: int = 0
    previous_epoch: int = 0
    state: int = RECONCILED
    active: OwnedActive = {}
    standby: Tasks = {}
    revoking_active: OwnedActive = {}
    revoking_standby: Tasks = {}
    target_active: Tasks = {}
    target_standby: Tasks = {}
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    due_ms: int = 0  # when it is removed unless it does the awaited step; 0 if none is awaited
    size_bytes: int = 0  # its part of State.group_bytes
    owner: int = 0  # the number of the principal that joined


class Configured(msgspec.Struct, frozen=True):
    """The result of a topology and the existing topics; `status` is None if all topics are as they must be."""

    status: tuple[int, str] | None  # code, detail
    tasks: dict[str, int]  # subtopology id -> number of tasks, ascending by id; empty if it cannot be decided
    counts: dict[str, int]  # the numbers of partitions of internal topics
    missing: list[InternalTopic]


class StreamsTables(msgspec.Struct, eq=False):
    """Tables derived from the group's members and the existing topics; nothing depends on their order."""

    active_owners: Owners = {}
    standby_owners: dict[str, dict[int, dict[str, str]]] = {}  # subtopology id -> partition -> process id -> member id
    due_ms: dict[str, int] = {}  # of the members that must do a step
    settled: dict[str, None] = {}  # members that have their target, at the assignment epoch
    configured: Configured | None = None  # None: to be computed again


class StreamsGroup(msgspec.Struct, eq=False):
    """The streams side of a group, whose members get their tasks from the state machine."""

    topology: Topology
    epoch: int = 1
    assignment_epoch: int = 0
    standby_replicas: int = 0  # for which the last epoch was begun
    members: dict[str, StreamsMember] = {}  # in the order in which they joined
    static_members: dict[str, str] = {}  # instance id -> member id
    next_target_ms: int = 0  # by the senders' clocks: no new target before; 0 for at once
    shutdown_by: str = ""  # the member that asked all members to stop
    endpoint_epoch: int = 0
    tables: StreamsTables = msgspec.field(default_factory=StreamsTables)  # derived
