"""Commands of classic groups and of committed offsets, and their outcomes."""

import msgspec

from penstock.contracts.commands.offsets import OffsetToCommit


class GroupProtocol(msgspec.Struct, frozen=True, array_like=True):
    """An assignment strategy that a member supports, and what it has to say for it."""

    name: str
    metadata: bytes


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A member (re)joins a classic group.

    With `member_id` empty the member gets `new_member_id`, which the gateway made: so a command sent again makes no
    second member. With an instance id it takes the place of who has that, if its sender had seen that one come.
    """

    now_ms: int
    group_id: str
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    require_known_member: bool  # KIP-394: an empty member id is answered with MEMBER_ID_REQUIRED
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: list[GroupProtocol]
    seen_sequence: int = -1  # as in `CommitOffsets`


class MemberAssignment(msgspec.Struct, frozen=True, array_like=True):
    """What the leader assigns to one member, opaque."""

    member_id: str
    assignment: bytes


class SyncGroup(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A member asks for its assignment; the leader brings everybody's."""

    now_ms: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: list[MemberAssignment]


class LeavingMember(msgspec.Struct, frozen=True, array_like=True):
    """A member that leaves, by member id, or by instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Members leave a group."""

    now_ms: int
    group_id: str
    members: list[LeavingMember]
    seen_sequence: int = -1  # as in `CommitOffsets`


class ExpireMember(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A member was not heard from for its session time-out; void if the machine saw it after `active_sequence`."""

    now_ms: int
    group_id: str
    member_id: str
    active_sequence: int


class CommitOffsets(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A group's offsets; generation -1 with an empty member id is a commit from outside the group."""

    now_ms: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    seen_sequence: int = -1  # the newest entry that its sender knew of when it was asked; -1: not told


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """An empty group and its offsets go."""

    now_ms: int
    group_id: str
    seen_sequence: int = -1  # as in `CommitOffsets`


class JoinedMember(msgspec.Struct, frozen=True, array_like=True):
    """A member as its leader gets to see it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The member is in this generation; `members` is filled for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: list[JoinedMember]
    skip_assignment: bool = False  # KIP-814: a static leader came back, nothing is to be assigned anew


class Synced(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Waiting(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Accepted; ask `group_wait` with these two until there is an answer."""

    member_id: str
    generation: int  # the generation at which the member began to wait


class MemberIdRequired(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Join again with this member id (KIP-394)."""

    member_id: str
