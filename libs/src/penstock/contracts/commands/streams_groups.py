"""The heartbeat command of members of streams groups, and its outcome (KIP-1071, ADR 0064).

A heartbeat is journaled only if it changes something: gateways ask with `StreamsHeartbeatQuery` first.
"""

import enum

import msgspec


class StreamsStatus(enum.IntEnum):
    """Kafka's status codes in the answers to heartbeats."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class InternalTopic(msgspec.Struct, frozen=True, array_like=True):
    """A repartition or changelog topic of a topology; `partitions` 0 means that the group decides their number."""

    name: str
    partitions: int
    replication_factor: int  # for descriptions only: the object store keeps the copies
    configs: list[tuple[str, str]]  # ascending


class Subtopology(msgspec.Struct, frozen=True, array_like=True):
    """A part of a topology with tasks of its own, one for each partition; all lists are in ascending order."""

    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    changelog_topics: list[InternalTopic]
    repartition_source_topics: list[InternalTopic]
    copartition_groups: list[list[str]]  # names of source topics that need the same number of partitions


class Topology(msgspec.Struct, frozen=True, array_like=True):
    """The topology of an application, with the subtopologies in ascending order of their ids."""

    epoch: int
    subtopologies: list[Subtopology]


class TaskIds(msgspec.Struct, frozen=True, array_like=True):
    """Tasks of one subtopology, in ascending order."""

    subtopology_id: str
    partitions: list[int]


class TaskOffset(msgspec.Struct, frozen=True, array_like=True):
    """The sum of a task's changelog offsets, as a member reports it."""

    subtopology_id: str
    partition: int
    offset: int


class OwnedTasks(msgspec.Struct, frozen=True, array_like=True):
    """The tasks that a member reports or gets."""

    active: list[TaskIds]
    standby: list[TaskIds]
    warmup: list[TaskIds] = []


class StreamsHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag=140):
    """A member joins (epoch 0), stays, reports its tasks, or leaves (-1, or -2 for a while).

    None, or -1 as a time-out, means "unchanged". The outcome is `StreamsMembership`. `seen_sequence` is as in
    `ConsumerHeartbeat`, `principal` as in `JoinGroup`.
    """

    now_ms: int
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int  # the newest endpoint information that the member has
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    topology: Topology | None
    owned: OwnedTasks | None
    process_id: str | None
    endpoint: tuple[str, int] | None  # host and port of the member's interactive queries
    client_tags: list[tuple[str, str]] | None
    task_offsets: list[TaskOffset] | None
    task_end_offsets: list[TaskOffset] | None
    shuts_down: bool = False  # all members of the application are to stop
    seen_sequence: int = -1
    principal: str = ""


class EndpointPartitions(msgspec.Struct, frozen=True, array_like=True):
    """The partitions whose state a process has, by topic name."""

    host: str
    port: int
    active: list[tuple[str, list[int]]]
    standby: list[tuple[str, list[int]]]


class StreamsMembership(msgspec.Struct, frozen=True, array_like=True, tag=140):
    """The current membership; `tasks` and `endpoints` are None if the member has them already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    status: list[tuple[int, str]]  # code, detail
    tasks: OwnedTasks | None
    endpoint_epoch: int
    endpoints: list[EndpointPartitions] | None
    missing_topics: list[InternalTopic]  # to be created for the group; they have their numbers of partitions
