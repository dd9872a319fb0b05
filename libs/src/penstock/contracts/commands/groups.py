"""Commands of classic groups and of committed offsets, and their outcomes."""

import msgspec

from penstock.contracts.commands.offsets import OffsetToCommit
from penstock.contracts.ids import TopicId


class GroupProtocol(msgspec.Struct, frozen=True, array_like=True):
    """An assignment strategy that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A member (re)joins a classic group.

    With an empty `member_id` the member gets `new_member_id`. The gateway makes that id, so a retry adds no second
    member. With an instance id it replaces the member that has this id, if its sender knew of that member's join.
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
    principal: str = ""  # the sender; "" for ANONYMOUS (ADR 0040)


class MemberAssignment(msgspec.Struct, frozen=True, array_like=True):
    """The leader's assignment for one member, as opaque bytes."""

    member_id: str
    assignment: bytes


class SyncGroup(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A member asks for its assignment; the leader sends the assignments of all members."""

    now_ms: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: list[MemberAssignment]


class LeavingMember(msgspec.Struct, frozen=True, array_like=True):
    """A leaving member, by its member id, or by its instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Members leave a group."""

    now_ms: int
    group_id: str
    members: list[LeavingMember]
    seen_sequence: int = -1  # as in `CommitOffsets`


class ExpireMember(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Remove a member that was silent for its session time-out; without effect if it acted after `active_sequence`."""

    now_ms: int
    group_id: str
    member_id: str
    active_sequence: int


class CommitOffsets(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Commit offsets of a group; generation -1 with an empty member id is a commit from outside the group."""

    now_ms: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given
    principal: str = ""  # as in `JoinGroup`
    # By name, those that the client gave: an offset of a topic that has another id now is rejected.
    topic_ids: dict[str, TopicId] = {}


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Delete an empty group with its offsets."""

    now_ms: int
    group_id: str
    seen_sequence: int = -1  # as in `CommitOffsets`


class JoinedMember(msgspec.Struct, frozen=True, array_like=True):
    """A member as the group's leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The member is in this generation; only the leader gets `members`."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: list[JoinedMember]
    skip_assignment: bool = False  # KIP-814: a static leader came back, and the assignments stay as they are


class Synced(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Waiting(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Accepted; the caller repeats the query `group_wait` with these two values until it gets an answer."""

    member_id: str
    generation: int  # the group's generation when the member began to wait


class MemberIdRequired(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The member must join again with this member id (KIP-394)."""

    member_id: str
