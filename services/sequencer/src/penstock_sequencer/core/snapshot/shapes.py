"""The shapes of the state in a snapshot: msgpack arrays, with their fields in this order.

A new field or another order is another format, and needs another version in `storage/snapshot_format.py`. New fields
are at the end. Their defaults are the initial values of the state (docs/formats/snapshot.md).
"""

import msgspec

from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import TASKS
from penstock.contracts.ids import SegmentId, TopicId
from penstock_sequencer.core.snapshot.migrations import NOTHING, Later
from penstock_sequencer.core.state.cluster import NO_HORIZON, Committed, Custody, JobLease, Lease, Member, Replacement

# (place of the topic among the topics and then the recoverable ones, partition), or (_STRAY, number of the stray)
Place = tuple[int, int]


class Producer(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    last_sequence: int
    active_ms: int
    recent: bytes


class PartitionTransactions(msgspec.Struct, frozen=True, array_like=True):
    open: dict[int, int]
    columns: list[bytes]


class Partition(msgspec.Struct, frozen=True, array_like=True):
    number: int
    log_start_offset: int
    high_watermark: int
    in_sweep: bool
    extents: list[bytes]
    producers: dict[int, Producer]
    cleaned_offset: int = 0  # from here on absent in version 1
    delete_horizon_ms: int = NO_HORIZON
    pass_offset: int = 0
    pass_horizon_ms: int = NO_HORIZON
    transactions: PartitionTransactions | None = None  # absent in version 2


class Topic(msgspec.Struct, frozen=True, array_like=True):
    name: str
    topic_id: TopicId
    configs: dict[str, str]
    partitions: list[Partition]
    altered_sequence: int = 0  # absent in version 2


class RecoverableTopic(msgspec.Struct, frozen=True, array_like=True):
    topic: Topic
    deleted_ms: int
    until_ms: int
    offsets: dict[str, dict[int, Committed]]
    deleted_sequence: int = 0


class Stray(msgspec.Struct, frozen=True, array_like=True):
    """A partition of a deleted topic that is still in some table of the state."""

    topic_id: TopicId
    partition: Partition


class Commit(msgspec.Struct, frozen=True, array_like=True):
    expires_ms: int
    batches: int
    firsts: bytes
    exceptions: dict[int, BatchResult]


class Group(msgspec.Struct, frozen=True, array_like=True):
    group_id: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: list[Member]
    static_members: dict[str, str]
    pending: dict[str, int]
    fenced: list[str]
    offsets: dict[str, dict[int, Committed]]
    join_deadline_ms: int
    initial_delay_ms: int
    initial_remaining_ms: int
    newcomer: bool
    sync_deadline_ms: int


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    active_ms: int
    changed_sequence: int
    state: str
    started_ms: int
    started_sequence: int
    previous: tuple[int, int]
    ended: tuple[int, int, bool] | None
    partitions: list[tuple[TopicId, int, int]]  # topic, partition, first offset
    offsets: dict[str, dict[TopicId, dict[int, Committed]]]


class State(msgspec.Struct, frozen=True, array_like=True):
    sequence: int
    clock_ms: int
    leader_epoch: int
    segment_ids: bytes
    segment_names: list[str]
    segment_columns: list[bytes]
    topics: list[Topic]
    deleted_topics: dict[TopicId, int]
    strays: list[Stray]
    pending_delete: list[int]  # numbers of strays
    partition_count: int
    extent_count: int
    commits: dict[SegmentId, Commit]
    next_producer_id: int
    producer_births: list[tuple[int, int]]
    producer_count: int
    producer_sweep: list[Place]
    groups: list[Group]
    group_bytes: int
    idle_groups: dict[str, int]
    deadlines: list[tuple[str, int]]
    custody: Custody
    level: int = 0  # from here on absent in version 1
    removed_sequence: int = 0
    replacements: dict[SegmentId, Replacement] = {}
    leases: dict[str, JobLease] = {}
    next_segment_number: int = 0  # from here on absent in version 2
    recoverable: list[RecoverableTopic] = []
    trimmed: list[Place] = []
    cluster_configs: dict[str, str] = {}
    tasks_ended_ms: bytes = bytes(8 * TASKS)
    task_leases: dict[int, Lease] = {}
    cluster_altered_sequence: int = 0
    transactions: list[Transaction] = []


class WholeState(State, frozen=True, array_like=True):
    """The state with the later parts; written only if one of them has no default value."""

    later: Later = NOTHING
