"""Queries about groups of any kind: offsets, members, heartbeats, configurations."""

import msgspec

from penstock.contracts.commands import Outcome
from penstock.contracts.rejections import Rejection


class GroupTopicPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


class GroupOffsetsQuery(msgspec.Struct, frozen=True, array_like=True):
    """A group's committed offsets; `topics` None means all of them.

    With `after` the answer is a page. Of all offsets it has those after this topic and partition, in this order. Of
    named partitions it has the first, and the sender asks again for the others.
    """

    min_sequence: int
    group_id: str
    topics: list[GroupTopicPartitions] | None
    fresh: bool = False
    member_id: str | None = None  # the member of a consumer group that asks (KIP-848)
    member_epoch: int = -1
    after: tuple[str, int] | None = None  # ("", -1) is before all


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """A committed offset; `offset` is -1 if there is none."""

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
    rejection: Rejection = Rejection.NONE  # why the asking member gets no offsets
    is_more: bool = False  # there are more after the last of these


class GroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """All groups in the given states; empty `states` means every state. `after` as in `MetadataQuery`, by group id."""

    min_sequence: int
    states: list[str]
    fresh: bool = False
    after: str | None = None


class GroupSummary(msgspec.Struct, frozen=True, array_like=True):
    """A group in a listing; `state` in Kafka's words: Empty, Stable, PreparingRebalance, Assigning, ..."""

    group_id: str
    protocol_type: str
    state: str
    is_consumer: bool = False  # a group of the consumer protocol (KIP-848), not a classic one
    is_share: bool = False
    is_streams: bool = False  # a group of Kafka Streams (KIP-1071)


class GroupsView(msgspec.Struct, frozen=True, array_like=True):
    """All groups that match the query."""

    sequence: int
    groups: list[GroupSummary]
    failure: str | None = None
    is_more: bool = False  # there are more after the last of these


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
    """A group as an administrator sees it; the state is "Dead" if there is no group with this id."""

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
    """A member's heartbeat in a classic group; never journaled."""

    min_sequence: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class HeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a heartbeat: NONE, or the reason why the member must rejoin."""

    sequence: int
    rejection: Rejection
    failure: str | None = None


class GroupWaitQuery(msgspec.Struct, frozen=True, array_like=True):
    """Wait at most `wait_ms` for the result of a command with the outcome `Waiting`; `kind` is "join" or "sync"."""

    min_sequence: int
    kind: str
    group_id: str
    member_id: str
    generation: int
    wait_ms: int


class GroupWaitView(msgspec.Struct, frozen=True, array_like=True):
    """The answer: `Joined`, `Synced` or `Rejected`; or `Waiting` again at the end of `wait_ms`."""

    sequence: int
    outcome: Outcome
    failure: str | None = None


class GroupConfigsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Configurations of groups (Kafka's GROUP resource); without `group_ids` only the ids of configured groups.

    These ids come in pages with `after`, as in `MetadataQuery`.
    """

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False
    after: str | None = None


class GroupConfigsView(msgspec.Struct, frozen=True, array_like=True):
    """The values that each group sets, in the query's order; `configs.groups` has the defaults."""

    sequence: int
    configs: list[dict[str, str]]
    failure: str | None = None
    group_ids: list[str] = []  # one per item of `configs`, or all configured groups
    is_more: bool = False  # there are more after the last of these
