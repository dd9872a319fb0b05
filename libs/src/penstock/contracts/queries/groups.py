"""Questions about groups of any kind: offsets, members, heartbeats, configurations."""

import msgspec

from penstock.contracts.commands import Outcome
from penstock.contracts.rejections import Rejection


class GroupTopicPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


class GroupOffsetsQuery(msgspec.Struct, frozen=True, array_like=True):
    """A group's committed offsets; `topics` None is all that it has."""

    min_sequence: int
    group_id: str
    topics: list[GroupTopicPartitions] | None
    fresh: bool = False
    member_id: str | None = None  # of a consumer group, who asks for itself (KIP-848)
    member_epoch: int = -1


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """`offset` -1 where nothing was committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    pending: bool = False  # an ongoing transaction may commit another one


class GroupOffsetsView(msgspec.Struct, frozen=True, array_like=True):
    """Offsets in the query's order."""

    sequence: int
    offsets: list[CommittedOffset]
    failure: str | None = None
    rejection: Rejection = Rejection.NONE  # why a member that asks for itself is not told


class GroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """All groups; empty `states` means every state."""

    min_sequence: int
    states: list[str]
    fresh: bool = False


class GroupSummary(msgspec.Struct, frozen=True, array_like=True):
    """A group in a listing; `state` in Kafka's words: Empty, Stable, PreparingRebalance, Assigning, ..."""

    group_id: str
    protocol_type: str
    state: str
    is_consumer: bool = False  # a group of the consumer protocol, no classic one
    is_share: bool = False


class GroupsView(msgspec.Struct, frozen=True, array_like=True):
    """Every group that was asked for."""

    sequence: int
    groups: list[GroupSummary]
    failure: str | None = None


class DescribeGroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Groups by id."""

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False


class MemberView(msgspec.Struct, frozen=True, array_like=True):
    """A member as an administrator sees it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupView(msgspec.Struct, frozen=True, array_like=True):
    """A group as an administrator sees it; state "Dead" where there is none of that id."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberView]


class DescribeGroupsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per id, in the query's order."""

    sequence: int
    groups: list[GroupView]
    failure: str | None = None


class HeartbeatQuery(msgspec.Struct, frozen=True, array_like=True):
    """A member says that it lives; never journaled."""

    min_sequence: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class HeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """Whether the member may go on."""

    sequence: int
    rejection: Rejection
    failure: str | None = None


class GroupWaitQuery(msgspec.Struct, frozen=True, array_like=True):
    """Wait for what a `Waiting` outcome promised, `wait_ms` at most; `kind` is "join" or "sync"."""

    min_sequence: int
    kind: str
    group_id: str
    member_id: str
    generation: int
    wait_ms: int


class GroupWaitView(msgspec.Struct, frozen=True, array_like=True):
    """The answer: Joined, Synced or Refused; or Waiting again, when the time is over."""

    sequence: int
    outcome: Outcome
    failure: str | None = None


class GroupConfigsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Configurations of groups (Kafka's GROUP resource); without groups only whose there are."""

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False


class GroupConfigsView(msgspec.Struct, frozen=True, array_like=True):
    """What is set of each group's, in the query's order; `group_configs.GROUP_RESOURCE_CONFIGS` has the defaults."""

    sequence: int
    configs: list[dict[str, str]]
    failure: str | None = None
    group_ids: list[str] = []  # whose they are
