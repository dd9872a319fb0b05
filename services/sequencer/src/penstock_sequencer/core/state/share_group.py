"""Share groups (KIP-932), as plain structures (ADR 0017).

These invariants hold before and after every entry:

 1. A partition's holds are ordered and dense: each begins where the one before it ends, and the first begins at
    `start`. The first is not DONE. Two neighbours differ in more than their offsets.
 2. An ACQUIRED hold belongs to one member of the group until `until_ms`, which is in the future. An AVAILABLE hold with
    an `until_ms` is delayed: it is in the future, too. `due_ms` is not later than the earliest `until_ms`.
 3. `start` goes back only if an administrator moves it. Offsets below it, and DONE ones, are never delivered again.
 4. A hold that is REJECTED or EXHAUSTED stays so until an `EndDeadLetters` ends it. Then it is DONE.
 5. An AVAILABLE hold has fewer `deliveries` than the limit at the time when it became AVAILABLE.
 6. A member's target has only partitions that the group shares, except while new targets are due.
 7. An id belongs to a share group or to a group of another kind, not to both.
"""

import msgspec

from penstock.contracts.ids import TopicId
from penstock_sequencer.core.state.consumer_group import Partitions

AVAILABLE = 0
ACQUIRED = 1
DONE = 2  # accepted, rejected, delivered as often as allowed, or no record at all
REJECTED = 3  # a member rejected it, and its dead letter is pending
EXHAUSTED = 4  # it was delivered as often as allowed, and its dead letter is pending
PENDING = (REJECTED, EXHAUSTED)


class Hold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The offsets from `first` to `last`, which are in flight, and their state."""

    first: int
    last: int
    status: int
    deliveries: int = 0
    member_id: str = ""  # the member that acquired them; only of ACQUIRED holds
    until_ms: int = 0  # the end of the lock of an ACQUIRED hold, or of the delay of an AVAILABLE one
    # Of ACQUIRED holds: number of the acquisition that gave them to the member. Of PENDING ones: the journal entry by
    # which they died.
    acquisition: int = 0


class SharePartition(msgspec.Struct, eq=False, array_like=True):
    """The position of a share group in a partition; after the last hold nothing was ever acquired."""

    start: int
    holds: list[Hold] = []
    in_flight: int = 0  # offsets in holds that are not DONE
    due_ms: int = 0  # when to check for ended locks and delays; 0 only if there are none


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of the answer to a command with a ticket that the rest of the state does not hold."""

    acquisition: int
    rejections: dict[int, int]  # by the place of the partition in the command, if a range of it was rejected


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
    assigned: Partitions = {}  # sent to the member already
    target: Partitions = {}  # to be sent to the member
    tickets: dict[int, Answered] = {}  # the newest last
    size_bytes: int = 0  # its part of State.group_bytes
    owner: int = 0  # the number of the principal that joined


class ShareGroup(msgspec.Struct, eq=False):
    """A share group, and its position in every partition that was ever assigned to its members."""

    group_id: str
    epoch: int = 0
    members: dict[str, ShareMember] = {}  # in the order in which they joined
    partitions: dict[TopicId, dict[int, SharePartition]] = {}
    acquisitions: int = 0
    altered_sequence: int = 0  # of the last entry by which an administrator moved positions
    assignment_epoch: int = 0  # of the targets; below `epoch` while others are due
    assigned_ms: int = 0  # when the members got their targets; 0 if there was no member since
    target_due_ms: int = 0  # when they get new targets; 0 if nothing changed since
    owner: int = 0  # the number of the principal that made it
