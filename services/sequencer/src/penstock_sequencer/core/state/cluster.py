"""The state of the virtual cluster, as plain structures; what may be said of it at any moment stands below.

Invariants, which hold before and after every entry:

 1. `clock_ms` is the highest `now_ms` of the commands seen, and never goes back.
 2. A partition's extents are ordered and dense: each begins where the one before ended, the last ends just below
    `high_watermark`. `log_start_offset` lies in one of them, or is the high watermark. Extents that end below it are
    there only until they are dropped, and the partition stands in `trimmed` until then. Compaction keeps that: one
    extent takes the place of contiguous ones, from the first's begin to the last's end, also where key compaction left
    gaps between its records.
 3. An offset is given out once: `high_watermark` never goes back, and a deleted topic's id is not used again while
    anybody could still be sending for it.
 4. A segment's `live_bytes` and `live_extents` are the sums over the extents that point to it, the ones not yet
    dropped included; it is condemned if and only if it has none. Only a condemned one is ever forgotten.
 5. A segment is committed once, by a flusher or by a compaction: the second commit gets the first one's results, or is
    refused.
 6. Per producer and partition the remembered batches are contiguous in sequence and ascend in offset.
 7. Topics have unique names, ids and names after Kafka's '.' -> '_'.
 8. A group's leader is a member, unless it has none; static member ids are members; pending ids are not. A group is
    Empty or PreparingRebalance if it has no members; in Stable and CompletingRebalance nobody waits for a join.
 9. Custody's sequences, and those of committed offsets, lie at or below `sequence`; snapshots ascend.
10. `pass_offset` <= `cleaned_offset` <= `high_watermark`: up to `cleaned_offset` each record was met by a pass of key
    compaction that had met all before it.
11. A segment is claimed by one job at most. Claims decide about nothing but who works on what.
12. A buried topic is in no table of topics: nobody reads, writes or expires it, and its extents are live until its
    window is over. Compaction goes on in it.
13. A chore is leased to one janitor at most. Chores decide about nothing but who does what.
14. A partition's open transactions are those of ongoing transactions that have records in it, and their first offsets
    ascend. A producer id belongs to one transactional id at most, and to one life of it: its epoch never goes back.
15. A partition's markers are just its extents without a segment.
16. Everything counted here has a limit in `limits`.

What is derived and could be computed anew (`topics_by_id`, `alarms`, `leased`, what segments contain, transactions by
producer and by group, share groups by topic, counts) lies beside what it derives from.
"""

from array import array
from collections import deque

import msgspec

from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import TASKS, GroupProtocol
from penstock.contracts.configs.quotas import Entity
from penstock.contracts.ids import SegmentId, TopicId
from penstock_sequencer.core.state.consumer_group import ConsumerGroup, Subscriptions
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, FIRST_PRODUCER_ID, Limits
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from penstock_sequencer.core.state.segments import Segments
from penstock_sequencer.core.state.share_group import ShareGroup

NO_HORIZON = -1  # no tombstone waits to be dropped
LEADER_EPOCH = 1  # never 0, which broke some clients; it grows once leadership can change

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"
# Of transactions, which begin as Empty ones, too.
ONGOING = "Ongoing"
COMMITTED = "CompleteCommit"
ABORTED = "CompleteAbort"

PartitionKey = tuple[TopicId, int]


class Producer(msgspec.Struct, eq=False):
    """What a partition knows of one idempotent producer."""

    epoch: int
    last_sequence: int
    active_ms: int  # the machine's clock at its last accepted batch
    recent: "array[int]"  # (first sequence, last sequence, base offset) of up to five batches, oldest first


class Partition(msgspec.Struct, eq=False):
    """One partition's log."""

    topic_id: TopicId
    number: int
    extents: Extents
    producers: dict[int, Producer]
    log_start_offset: int = 0
    high_watermark: int = 0
    in_sweep: bool = False  # whether it stands in State.producer_sweep
    deleted: bool = False
    index: int = -1  # in State.partitions_by_index
    cleaned_offset: int = 0  # of each key, what comes before it holds the last record only
    delete_horizon_ms: int = NO_HORIZON  # when the first tombstone before it may go
    pass_offset: int = 0  # how far the last pass of key compaction over the log has come
    pass_horizon_ms: int = NO_HORIZON  # of the tombstones that it has met
    size_bytes: int = 0  # of all its extents
    in_trimmed: bool = False  # whether it stands in State.trimmed
    transactions: PartitionTransactions | None = None  # from the first one on


class Topic(msgspec.Struct, eq=False):
    """A topic; `configs` holds what was set, not the defaults."""

    name: str
    topic_id: TopicId
    partitions: list[Partition]
    configs: dict[str, str]
    altered_sequence: int = 0  # of the entry that set them last; 0 if that came before JANITOR_LEVEL


class Lease(msgspec.Struct, eq=False):
    """Who does a chore."""

    holder: str
    until_ms: int  # by the machine's clock


class RememberedCommit(msgspec.Struct, eq=False):
    """A commit's results, small: accepted batches follow one another, so only the others are kept one by one."""

    expires_ms: int
    batches: int  # -1 for a compacted segment: its id is taken, its job's outcome is a Replacement
    firsts: "array[int]"  # per run: the offset of its first accepted batch, the log start offset; -1 for no such topic
    exceptions: dict[int, BatchResult]  # by the batch's number in the command: refused and duplicate ones


class Replacement(msgspec.Struct, eq=False, gc=False):
    """The outcome of a compaction job."""

    # The names in the snapshot are older than those in the code.
    expires_ms: int = msgspec.field(name="forget_ms")
    runs: int
    # One per run; those after the last rejected one are left out.
    rejections: bytes = msgspec.field(name="refusals")


class JobLease(msgspec.Struct, eq=False):
    """A compaction job that somebody works on."""

    holder: str
    until_ms: int  # by the machine's clock
    segment_ids: list[SegmentId]


class Committed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group's committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    sequence: int = 0  # of the entry that stored it; 0 if that came before LATE_COMMANDS_LEVEL


class RecoverableTopic(msgspec.Struct, eq=False):
    """A deleted topic that can still come back, with its partitions' producers and what groups had committed in it."""

    topic: Topic
    deleted_ms: int
    until_ms: int  # by the machine's clock
    offsets: dict[str, dict[int, Committed]] = {}  # group id -> partition
    deleted_sequence: int = 0  # of the entry that deleted it


class Member(msgspec.Struct, eq=False):
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[GroupProtocol]
    active_sequence: int  # of the last journal entry that proves it was alive
    assignment: bytes = b""
    joining: bool = False  # waits for the answer to a JoinGroup
    synced: bool = False  # has sent its SyncGroup in this generation
    size_bytes: int = 0  # its part of State.group_bytes


class Group(msgspec.Struct, eq=False):
    """A group and its offsets: a classic one, or with `consumer` one whose members are there."""

    group_id: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str  # a member id, "" for none
    members: dict[str, Member]  # in the order in which they came
    static_members: dict[str, str]  # group instance id -> member id
    protocol_counts: dict[str, int]  # protocol name -> how many members support it
    pending: dict[str, int]  # member ids given out (KIP-394) -> when they expire
    fenced: dict[str, None]  # ids of replaced static members, the newest last
    offsets: dict[str, dict[int, Committed]]  # topic name -> partition
    join_deadline_ms: int = 0  # PreparingRebalance: when it ends at the latest
    initial_delay_ms: int = 0  # > 0: the first rebalance of an empty group, waiting for more members
    initial_remaining_ms: int = 0  # how much longer that may be extended
    newcomer: bool = False  # somebody new came during that delay
    sync_deadline_ms: int = 0  # when members that joined and did not sync are dropped; 0: nobody is awaited
    consumer: ConsumerGroup | None = None  # of a group of the consumer protocol; then `generation` is its epoch
    emptied_ms: int = -1  # by the watch, when its last member went; -1 without one since OFFSET_EXPIRY_LEVEL
    static_since: dict[str, int] = {}  # group instance id -> the entry by which its member came, from LATE_JOINS_LEVEL


class Transaction(msgspec.Struct, eq=False):
    """What is known of a transactional id; partitions and offsets are those of the transaction that is ongoing."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    active_ms: int  # the machine's clock when a producer began or a transaction ended
    changed_sequence: int  # of that entry
    state: str = EMPTY
    started_ms: int = -1  # the machine's clock when it began; -1 unless it is ongoing
    started_sequence: int = 0  # of the entry with which the last one began
    previous: tuple[int, int] = (-1, -1)  # producer id and epoch, before this very producer asked for the present ones
    ended: tuple[int, int, bool] | None = None  # how the last one was ended: producer id and epoch then, committed
    partitions: dict[PartitionKey, int] = {}  # -> its first offset there, -1 while there is none
    offsets: dict[str, dict[TopicId, dict[int, Committed]]] = {}  # by group; they count once it is committed
    offset_count: int = 0


class Custody(msgspec.Struct, eq=False):
    """Who keeps the journal's house, and how far that has come."""

    holder: str = ""  # the author of the custodian's entries, "" before there was one
    until_ms: int = 0  # by the machine's clock; from then on anybody may take over
    archived_sequence: int = 0  # all entries up to this one are in the archive
    snapshots: list[int] = []  # the sequences of the newest verified snapshots, ascending, at most SNAPSHOTS_KEPT
    snapshot_ms: int = 0  # the clock when the newest was noted; before there is one, when custody was first taken


class State(msgspec.Struct, eq=False):
    """Everything that the journal says."""

    segments: Segments
    sequence: int = 0  # of the last applied entry
    clock_ms: int = 0
    leader_epoch: int = LEADER_EPOCH
    topics: dict[str, Topic] = {}
    topics_by_id: dict[TopicId, Topic] = {}
    topics_by_metric_name: dict[str, Topic] = {}  # '.' and '_' collide there, as in Kafka
    deleted_topics: dict[TopicId, int] = {}  # -> when the id may be forgotten
    pending_delete: deque[Partition] = msgspec.field(
        default_factory=deque
    )  # of deleted topics, extents still to be dropped
    recoverable: dict[TopicId, RecoverableTopic] = {}  # in the order in which they were deleted
    trimmed: deque[Partition] = msgspec.field(
        default_factory=deque
    )  # with extents before the log start, or doomed since
    cluster_configs: dict[str, str] = {}  # defaults for all topics, those that were set
    cluster_altered_sequence: int = 0  # of the entry that set them last
    client_quotas: dict[Entity, dict[str, str]] = {}  # in the order in which entities got their first ones
    quotas_altered_sequence: int = 0  # of the entry that changed one last
    tasks_ended_ms: "array[int]" = msgspec.field(default_factory=lambda: array("q", bytes(8 * TASKS)))
    task_leases: dict[int, Lease] = {}
    partitions_by_index: dict[int, Partition] = {}  # also of buried topics; indexes are short names in this process
    next_index: int = 0
    partition_count: int = 0  # of all topics, buried ones too
    extent_count: int = 0
    commits: dict[SegmentId, RememberedCommit] = {}
    replacements: dict[SegmentId, Replacement] = {}  # by the job's first output
    leases: dict[str, JobLease] = {}  # by job
    leased: dict[SegmentId, str] = {}  # -> the job
    next_producer_id: int = FIRST_PRODUCER_ID
    producer_births: deque[tuple[int, int]] = msgspec.field(default_factory=deque)  # (clock, first id given out then)
    producer_count: int = 0
    producer_sweep: deque[Partition] = msgspec.field(default_factory=deque)  # partitions that know producers
    groups: dict[str, Group] = {}
    group_bytes: int = 0  # about the size of all members and offsets, those of buried topics and transactions too
    idle_groups: dict[str, int] = {}  # -> when to look whether it is still empty and without offsets
    lived_ms: int = 0  # the watch (watch.py), from OFFSET_EXPIRY_LEVEL on
    ages: deque[tuple[int, int]] = msgspec.field(default_factory=deque)  # (the watch, the last entry then), ascending
    expiry_round: deque[str] = msgspec.field(default_factory=deque)  # groups still to be looked at for old offsets
    deadlines: dict[str, int] = {}  # group id -> the earliest of its deadlines
    alarms: list[tuple[int, str]] = []  # heap over `deadlines`; entries that it no longer holds are stale
    subscriptions: Subscriptions = msgspec.field(default_factory=Subscriptions)
    departed: dict[tuple[str, str], tuple[int, int]] = {}  # group, member -> entry by which it left, when; in order
    custody: Custody = msgspec.field(default_factory=Custody)
    level: int = 0  # what all replicas understand; it never falls
    removed_sequence: int = 0  # of the last entry that forgot committed offsets, from LATE_COMMANDS_LEVEL on
    transactions: dict[str, Transaction] = {}  # by transactional id, in the order of their `active_ms`
    transactions_by_producer: dict[int, Transaction] = {}
    transactions_by_group: dict[str, dict[str, None]] = {}  # group id -> transactional ids that have offsets for it
    ongoing: dict[str, Transaction] = {}
    transaction_alarms: list[tuple[int, str]] = []  # heap over the deadlines of `ongoing`; others in it are stale
    transaction_partition_count: int = 0  # of all that are ongoing
    aborted_count: int = 0  # aborted transactions that partitions still know
    share_groups: dict[str, ShareGroup] = {}
    share_topics: dict[TopicId, dict[str, None]] = {}  # -> the share groups that know where they are in it; derived
    share_partition_count: int = 0  # of all share groups
    share_record_count: int = 0  # that are in flight in them; holds instead where a group has no members
    group_configs: dict[str, dict[str, str]] = {}  # by group id, of groups that have set some
    group_configs_altered_sequence: int = 0  # of the entry that changed some last
    limits: Limits = DEFAULT_LIMITS  # of the release: neither in snapshots nor in the hash of the state


class Changes(msgspec.Struct, eq=False):
    """What one entry has changed so far."""

    advanced: dict[tuple[TopicId, int], tuple[Partition, int]] = {}  # -> the high watermark before
    trimmed: dict[tuple[TopicId, int], Partition] = {}  # whose log start has moved
    topics: dict[str, None] = {}
    groups: dict[str, None] = {}
    share_locks_ended: int = 0  # records of share groups that nobody said anything of in time


def new_state(limits: Limits = DEFAULT_LIMITS) -> State:
    """The state before the first journal entry."""
    return State(Segments(), limits=limits)
