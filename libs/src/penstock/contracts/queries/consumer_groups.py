"""Queries about consumer groups (KIP-848)."""

import msgspec

from penstock.contracts.commands import ConsumerHeartbeat, ConsumerMembership
from penstock.contracts.commands.consumer_groups import TopicPartitions
from penstock.contracts.commands.outcomes import Rejected


class ConsumerHeartbeatQuery(msgspec.Struct, frozen=True, array_like=True):
    """A member's heartbeat, answered without a journal entry if it changes nothing."""

    min_sequence: int
    heartbeat: ConsumerHeartbeat
    fresh: bool = False


class ConsumerHeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """The answer; None if the heartbeat changes something, so that the gateway must send it as a command."""

    sequence: int
    outcome: ConsumerMembership | Rejected | None
    failure: str | None = None


class ConsumerGroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Consumer groups by id."""

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False


class ConsumerMemberView(msgspec.Struct, frozen=True, array_like=True):
    """A member as an administrator sees it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: list[str]
    pattern: str
    assigned: list[TopicPartitions]
    target: list[TopicPartitions]
    is_classic: bool


class ConsumerGroupView(msgspec.Struct, frozen=True, array_like=True):
    """A group as an administrator sees it; `state` is "" if there is no consumer group with this id."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ConsumerMemberView]
    topic_names: list[tuple[bytes, str]]  # of the topics in the members' assignments and targets
    is_classic: bool = False


class ConsumerGroupsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per id, in the query's order."""

    sequence: int
    groups: list[ConsumerGroupView]
    failure: str | None = None
