"""Queries about streams groups (KIP-1071)."""

import msgspec

from penstock.contracts.commands.outcomes import Rejected
from penstock.contracts.commands.streams_groups import (
    OwnedTasks,
    StreamsHeartbeat,
    StreamsMembership,
    Subtopology,
    TaskOffset,
)


class StreamsHeartbeatQuery(msgspec.Struct, frozen=True, array_like=True):
    """A member's heartbeat, answered without a journal entry if it changes nothing."""

    min_sequence: int
    heartbeat: StreamsHeartbeat
    fresh: bool = False


class StreamsHeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """The answer; None if the heartbeat changes something, so that the gateway must send it as a command."""

    sequence: int
    outcome: StreamsMembership | Rejected | None
    failure: str | None = None


class StreamsGroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Streams groups by id."""

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False


class StreamsMemberView(msgspec.Struct, frozen=True, array_like=True):
    """A member as an administrator sees it."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: tuple[str, int] | None
    client_tags: list[tuple[str, str]]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assigned: OwnedTasks
    target: OwnedTasks


class StreamsGroupView(msgspec.Struct, frozen=True, array_like=True):
    """A group as an administrator sees it; `state` is "" if there is no streams group with this id."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: list[Subtopology]  # with the numbers of partitions, if the group has decided them
    members: list[StreamsMemberView]
    is_other: bool = False  # a group of another kind has the id


class StreamsGroupsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per id, in the query's order."""

    sequence: int
    groups: list[StreamsGroupView]
    failure: str | None = None
