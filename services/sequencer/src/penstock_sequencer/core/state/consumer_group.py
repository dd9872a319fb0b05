"""Consumer groups of the new protocol (KIP-848), as plain structures; `state.Group` has one beside its offsets.

Invariants, which hold before and after every entry:

 1. A partition that a member has, or is to give back, is no other member's: `owners` names it, and nobody else.
 2. `previous_epoch` <= `epoch` <= the group's assignment epoch <= the group's epoch, but for members that are away for
    a while (AWAY), and none of these ever goes back.
 3. What is in `target` at the assignment epoch is assigned to one member at most, and is of a topic that it subscribes.
 4. A member that is RECONCILED has just its target.
"""

import msgspec

from penstock.contracts.commands import GroupProtocol
from penstock.contracts.ids import TopicId
from penstock_sequencer.core.regex.regex_subscriptions import Pattern

RECONCILED = 0  # has its target
REVOKING = 1  # is to give partitions back before it goes on
AWAITING = 2  # partitions of its target are still other members'

AWAY = -2  # the epoch of a static member that left for a while

ASSIGNING = "Assigning"
RECONCILING = "Reconciling"

Partitions = dict[TopicId, list[int]]  # ascending


class ConsumerMember(msgspec.Struct, eq=False):
    """A member of a consumer group; with `protocols` one that still speaks the classic protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: list[str]
    pattern: str  # "" for none
    assignor: str  # that it asks for, "" for none
    active_sequence: int  # of the last journal entry that proves it was alive
    changed_sequence: int = 0  # of the last entry that changed anything in this member
    epoch: int = 0
    previous_epoch: int = 0
    state: int = RECONCILED
    assigned: Partitions = {}
    revoking: Partitions = {}
    target: Partitions = {}
    due_ms: int = 0  # when it is out unless it has done what is awaited of it; 0 if nothing is
    session_timeout_ms: int = 0  # its own, of the classic protocol
    protocols: list[GroupProtocol] = []
    synced: bool = True  # of the classic protocol: has asked for its assignment
    size_bytes: int = 0  # its part of State.group_bytes


class Tables(msgspec.Struct, eq=False):
    """What follows from a group's members, so that nobody has to look at all of them; nothing depends on its order."""

    owners: dict[TopicId, dict[int, str]] = {}  # partition -> member id
    due_ms: dict[str, int] = {}  # of the members of whom something is awaited
    settled: dict[str, None] = {}  # members that have their target, at the assignment epoch
    classic: dict[str, None] = {}  # members that still speak the classic protocol


class ConsumerGroup(msgspec.Struct, eq=False):
    """What a group is beside its offsets, while its members have their assignments from the machine."""

    epoch: int
    assignment_epoch: int
    assignor: str
    members: dict[str, ConsumerMember] = {}  # in the order in which they came
    static_members: dict[str, str] = {}  # instance id -> member id
    assigned_ms: int = 0  # when the target was made, from ASSIGNMENT_INTERVAL_LEVEL on; 0 if it was not
    tables: Tables = msgspec.field(default_factory=Tables)  # derived


class PatternUse(msgspec.Struct, eq=False):
    """A pattern that somebody subscribes by."""

    pattern: Pattern
    topics: dict[str, None]  # the names of those that match
    groups: dict[str, int] = {}  # group id -> how many of its members


class Subscriptions(msgspec.Struct, eq=False):
    """Who subscribes what, derived from the members of all consumer groups."""

    groups_by_topic: dict[str, dict[str, int]] = {}  # topic name -> group id -> how many of its members, by that name
    patterns: dict[str, PatternUse] = {}
