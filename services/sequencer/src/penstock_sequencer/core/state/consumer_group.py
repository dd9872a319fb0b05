"""Consumer groups (KIP-848), as plain structures; `Group.consumer` holds one, beside the group's offsets.

These invariants hold before and after every entry:

 1. A partition that is assigned to a member, or that it must still revoke, belongs to no other member. `owners` names
    that member only.
 2. `previous_epoch` <= `epoch` <= the group's assignment epoch <= the group's epoch, and none of these ever goes back.
    Static members that left for a while (AWAY) are the exception.
 3. A partition in `target` at the assignment epoch is assigned to one member at most. That member subscribes to its
    topic.
 4. A member in the state RECONCILED has exactly its target.
"""

import msgspec

from penstock.contracts.commands import GroupProtocol
from penstock.contracts.ids import TopicId
from penstock.contracts.regex.regex_subscriptions import Pattern

RECONCILED = 0  # has its target
REVOKING = 1  # must revoke partitions before it continues
AWAITING = 2  # other members still own partitions of its target

AWAY = -2  # the epoch of a static member that left for a while

ASSIGNING = "Assigning"
RECONCILING = "Reconciling"

Partitions = dict[TopicId, list[int]]  # ascending


class ConsumerMember(msgspec.Struct, eq=False):
    """A member of a consumer group; a member with `protocols` still uses the classic protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: list[str]
    pattern: str  # "" for none
    assignor: str  # the assignor that it asks for, "" for none
    active_sequence: int  # of the last journal entry that proves it was alive
    changed_sequence: int = 0  # of the last entry that changed anything in this member
    epoch: int = 0
    previous_epoch: int = 0
    state: int = RECONCILED
    assigned: Partitions = {}
    revoking: Partitions = {}
    target: Partitions = {}
    due_ms: int = 0  # when it is removed unless it does the awaited step; 0 if none is awaited
    session_timeout_ms: int = 0  # of a classic member: its own timeout
    protocols: list[GroupProtocol] = []
    synced: bool = True  # of a classic member: whether it has asked for its assignment
    size_bytes: int = 0  # its part of State.group_bytes
    owner: int = 0  # the number of the principal that joined


class Tables(msgspec.Struct, eq=False):
    """Tables derived from the group's members, to avoid a walk over all members; nothing depends on their order."""

    owners: dict[TopicId, dict[int, str]] = {}  # partition -> member id
    due_ms: dict[str, int] = {}  # of the members that must do a step
    settled: dict[str, None] = {}  # members that have their target, at the assignment epoch
    classic: dict[str, None] = {}  # members that still use the classic protocol


class ConsumerGroup(msgspec.Struct, eq=False):
    """The consumer side of a group, whose members get their assignments from the state machine."""

    epoch: int
    assignment_epoch: int
    assignor: str
    members: dict[str, ConsumerMember] = {}  # in the order in which they joined
    static_members: dict[str, str] = {}  # instance id -> member id
    assigned_ms: int = 0  # when the target was computed, from ASSIGNMENT_INTERVAL_LEVEL on; 0 if it was not
    tables: Tables = msgspec.field(default_factory=Tables)  # derived


class PatternUse(msgspec.Struct, eq=False):
    """A pattern that consumer groups subscribe to."""

    pattern: Pattern
    topics: dict[str, None]  # the names of the topics that match
    groups: dict[str, int] = {}  # group id -> how many of its members subscribe to the pattern


class Subscriptions(msgspec.Struct, eq=False):
    """The subscriptions of all consumer groups, derived from their members."""

    groups_by_topic: dict[str, dict[str, int]] = {}  # topic name -> group id -> members that subscribe to this name
    patterns: dict[str, PatternUse] = {}
