"""Share groups (KIP-932), as plain structures (ADR 0017).

Invariants, which hold before and after every entry:

 1. A partition's holds are ordered and dense: each begins where the one before ended, the first at `start`. The first
    is not DONE, and of two neighbours one differs from the other in more than its offsets.
 2. An offset that is ACQUIRED is one member's, who is in the group, until `until_ms`, which lies ahead; `due_ms` is not
    later than the first of them.
 3. `start` goes back only if an administrator says so. What lies below it, or is DONE, is never given out again.
 4. `deliveries` of what is AVAILABLE is less than the limit at the time when it became so.
 5. A member's target is of partitions that the group shares, unless other targets are to come.
 6. An id is a share group's or another group's, not both.
"""

import msgspec

from penstock.contracts.ids import TopicId
from penstock_sequencer.core.state.consumer_group import Partitions

AVAILABLE = 0
ACQUIRED = 1
DONE = 2  # accepted, rejected, delivered often enough, or no record at all


class Hold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets from `first` to `last` that are in flight, and how they stand."""

    first: int
    last: int
    status: int
    deliveries: int = 0
    member_id: str = ""  # whose they are; from here on of ACQUIRED ones only
    until_ms: int = 0
    acquisition: int = 0  # by which the member got them


class SharePartition(msgspec.Struct, eq=False, array_like=True):
    """Where a share group is in a partition; behind the last hold nothing was ever acquired."""

    start: int
    holds: list[Hold] = []
    in_flight: int = 0  # offsets in holds that are not DONE
    due_ms: int = 0  # when to look for locks that have ended; 0 if nothing is acquired for sure


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a command with a ticket was answered, as far as the state does not say it."""

    acquisition: int
    rejections: dict[int, int]  # by the number of the partition in the command, where not all was taken


class ShareMember(msgspec.Struct, eq=False):
    """A member of a share group."""

    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: list[str]
    active_sequence: int  # of the last journal entry that proves it was alive
    changed_sequence: int = 0  # of the last entry that changed anything in this member
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = {}  # that it has been told
    target: Partitions = {}  # that it will be
    tickets: dict[int, Answered] = {}  # the newest last
    size_bytes: int = 0  # its part of State.group_bytes


class ShareGroup(msgspec.Struct, eq=False):
    """A share group, and where it is in all that its members have ever been assigned."""

    group_id: str
    epoch: int = 0
    members: dict[str, ShareMember] = {}  # in the order in which they came
    partitions: dict[TopicId, dict[int, SharePartition]] = {}
    acquisitions: int = 0
    altered_sequence: int = 0  # of the last entry by which an administrator changed where it is
    assignment_epoch: int = 0  # of the targets; behind `epoch` while others are to come
    assigned_ms: int = 0  # when the members got their targets; 0 if there was nobody since
    target_due_ms: int = 0  # when they get others; 0 if nothing changed since
