"""The heartbeat command of consumer group members, and its outcome (KIP-848, ADR 0013).

A heartbeat is journaled only if it changes something: gateways ask with `ConsumerHeartbeatQuery` first.
"""

import msgspec

from penstock.contracts.ids import TopicId

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2  # a static member that intends to come back


class TopicPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, in ascending order."""

    topic_id: TopicId
    partitions: list[int]


class ConsumerHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """A member joins, stays, reports its partitions, or leaves. None, or -1 as a time-out, means "unchanged".

    A member sends one heartbeat at a time. So a heartbeat is late if its sender had not seen the entry of the member's
    last change (`seen_sequence`; -1: not given). A late heartbeat that would change something is rejected as STALE.
    """

    now_ms: int
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    topics: list[str] | None
    pattern: str | None  # a regular expression in RE2's syntax over topic names; "" for none
    assignor: str | None
    owned: list[TopicPartitions] | None
    seen_sequence: int = -1
    principal: str = ""  # as in `JoinGroup`


class ConsumerMembership(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """The current membership; `assignment` is None if the member has it already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: list[TopicPartitions] | None
