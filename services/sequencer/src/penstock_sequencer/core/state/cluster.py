"""The state of the virtual cluster, as plain structures, and its invariants.

These invariants hold before and after every entry:

 1. `clock_ms` is the highest `now_ms` of the commands seen, and never goes back.
 2. A partition's extents are ordered and dense: each begins where the one before it ends, and the last ends just below
    `high_watermark`. `log_start_offset` lies in one of them, or is the high watermark. Extents that end below it stay
    only until they are dropped; until then the partition is in `trimmed`. Compaction keeps this order: one extent
    replaces contiguous ones, from the start of the first to the end of the last. It does so even where key compaction
    left gaps between the records.
 3. An offset is assigned once: `high_watermark` never goes back. A deleted topic's id is not used again while a client
    could still send records for it.
 4. A segment's `live_bytes` and `live_extents` are the sums over the extents that point to it, even those that are
    still to be dropped. A segment is dead if and only if it has no such extent. Only a dead segment is ever removed.
 5. A segment is committed once, by a flusher or by a compaction. A second commit gets the results of the first, or is
    rejected.
 6. The remembered batches of a producer in a partition are contiguous in sequence and ascend in offset.
 7. Topics have unique names and unique ids. The names stay unique when '_' replaces '.', as in Kafka's metrics.
 8. A group's leader is one of its members, if it has a leader. Static member ids are members; pending ids are not. A
    group without members is Empty or PreparingRebalance. In Stable and CompletingRebalance no member waits for a join.
 9. The sequences in `custody` and those of committed offsets are at most `sequence`. Those of snapshots ascend.
10. `pass_offset` <= `cleaned_offset` <= `high_watermark`. Every record below `cleaned_offset` was read by a pass of key
    compaction that had read all records before it.
11. A segment is in one job lease at most. Job leases only divide the work between compactors.
12. A recoverable topic is in no table of topics: no client reads or writes it, and retention does not trim it. Its
    extents are live until its undelete window ends. Compaction of it continues.
13. A janitor task is leased to one janitor at most. Task leases only divide the work between janitors.
14. A partition's open transactions are the ongoing transactions that have records in it. Their first offsets ascend. A
    producer id belongs to one transactional id at most, and to one life of it: its epoch never goes back.
15. The markers of a partition are exactly its extents without a segment.
16. No batch of a producer that a partition evicted is accepted there again: its client does not repeat it any more, and
    segments born before the eviction are too old for batches of its principal.
17. A user has one or two verifiers, of different mechanisms. Every binding passes `binding_validation_error`.
18. Tokens are in the order in which they were changed. No token expires after its `max_ms`, and a void one stays void.
19. `principals` has a row for each owner of an entry. Its counts are those of the owner's entries.
20. Everything that is counted here has a limit in `limits`.

Derived fields could be computed anew, and each is beside the field that it derives from. They are `topics_by_id`,
`alarms`, `leased`, `dead_letters`, contents of segments, transactions by producer and group, share groups by topic, and
counts.
"""

from array import array
from collections import deque

import msgspec

from penstock.contracts.acls import AclBinding
from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import TASKS, DelegationToken, GroupProtocol, ScramVerifier
from penstock.contracts.configs.quotas import Entity
from penstock.contracts.ids import SegmentId, TopicId
from penstock_sequencer.core.state.consumer_group import ConsumerGroup, Subscriptions
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, FIRST_PRODUCER_ID, Limits
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from penstock_sequencer.core.state.segments import Segments
from penstock_sequencer.core.state.share_group import ShareGroup
from penstock_sequencer.core.state.streams_group import StreamsGroup

NOT_NAMED = 0  # the number of ANONYMOUS as a principal, and the owner of entries made below SHARES_LEVEL
NO_HORIZON = -1  # no tombstone waits to be dropped
LEADER_EPOCH = 1  # never 0, because 0 broke some clients; it will grow when leadership can change

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"
# States of transactions; they also begin as Empty.
ONGOING = "Ongoing"
COMMITTED = "CompleteCommit"
ABORTED = "CompleteAbort"

PartitionKey = tuple[TopicId, int]


class Principal(msgspec.Struct, eq=False, gc=False):
    """A principal that has entries in tables that all clients use, and how many (state/shares.py); derived counts."""

    name: str  # as commands have it: "User:" and the user's name; "" for ANONYMOUS
    producers: int = 0  # in all partitions
    transactional_ids: int = 0
    groups: int = 0  # of all kinds
    member_bytes: int = 0  # of groups of all kinds
    evicted_ms: int = 0  # the machine's clock when a producer of it was evicted last; not derived


class Producer(msgspec.Struct, eq=False):
    """The state of one idempotent producer in a partition."""

    epoch: int
    last_sequence: int
    active_ms: int  # the producer clock (producer_clock.py) at the last accepted batch
    recent: "array[int]"  # (first sequence, last sequence, base offset) of up to five batches, oldest first
    owner: int = NOT_NAMED  # the number of the principal that introduced it to the partition


class OwnedProducers(msgspec.Struct, eq=False, gc=False):
    """The producers of one principal in a partition."""

    count: int = 0
    idlest_ms: int = 0  # none of them was active before; a lower bound


class Partition(msgspec.Struct, eq=False):
    """One partition's log."""

    topic_id: TopicId
    number: int
    extents: Extents
    producers: dict[int, Producer]
    log_start_offset: int = 0
    high_watermark: int = 0
    in_sweep: bool = False  # whether it is in State.producer_sweep
    deleted: bool = False
    index: int = -1  # in State.partitions_by_index
    cleaned_offset: int = 0  # below it the log holds only the last record of each key
    delete_horizon_ms: int = NO_HORIZON  # when the first tombstone below `cleaned_offset` may be removed
    pass_offset: int = 0  # the offset that the last pass of key compaction over the log has reached
    pass_horizon_ms: int = NO_HORIZON  # when the first of the tombstones that this pass has read may be removed
    size_bytes: int = 0  # of all its extents
    in_trimmed: bool = False  # whether it is in State.trimmed
    transactions: PartitionTransactions | None = None  # None until the first transaction
    # The next three are 0 below PRODUCERS_LEVEL.
    first_new_producer_id: int = 0  # smaller ids are older than the partition, so their sequences may be under way
    evicted_ms: int = 0  # the machine's clock when producers were evicted last
    evicted_id_max: int = 0  # the largest id that was ever evicted
    idlest_ms: int = 0  # no producer was active before; a lower bound, derived
    # By principal, derived; None until the partition is almost full.
    owned: dict[int, OwnedProducers] | None = None
    # When producers of a principal were evicted last; for those of NOT_NAMED `evicted_ms` is used.
    evictions: dict[int, int] | None = None


class Topic(msgspec.Struct, eq=False):
    """A topic; `configs` holds the values that were set, not the defaults."""

    name: str
    topic_id: TopicId
    partitions: list[Partition]
    configs: dict[str, str]
    altered_sequence: int = 0  # of the entry that set them last; 0 if that was before JANITOR_LEVEL


class Lease(msgspec.Struct, eq=False):
    """The lease of a janitor task."""

    holder: str
    until_ms: int  # by the machine's clock


class RememberedCommit(msgspec.Struct, eq=False):
    """The results of a commit, in little space: accepted batches are contiguous, so only the others are kept singly."""

    expires_ms: int
    batches: int  # -1 for a compacted segment: its id is used, and the outcome of its job is a `Replacement`
    firsts: "array[int]"  # per run: offset of the first accepted batch, log start offset; both -1 for an unknown topic
    exceptions: dict[int, BatchResult]  # rejected and duplicate batches, by their numbers in the command


class Replacement(msgspec.Struct, eq=False, gc=False):
    """The outcome of a compaction job."""

    # The names in the snapshot are older than those in the code.
    expires_ms: int = msgspec.field(name="forget_ms")
    runs: int
    # One per run; the bytes after the last rejection are left out.
    rejections: bytes = msgspec.field(name="refusals")


class JobLease(msgspec.Struct, eq=False):
    """The lease of a compaction job, on which one compactor works."""

    holder: str
    until_ms: int  # by the machine's clock
    segment_ids: list[SegmentId]


class Committed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group's committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    sequence: int = 0  # of the entry that stored it; 0 if that was before LATE_COMMANDS_LEVEL


class RecoverableTopic(msgspec.Struct, eq=False):
    """A deleted topic that can still come back, with the producers of its partitions and the groups' offsets in it."""

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
    joining: bool = False  # whether it waits for the answer to a JoinGroup
    synced: bool = False  # whether it has sent a SyncGroup in this generation
    size_bytes: int = 0  # its part of State.group_bytes
    owner: int = NOT_NAMED  # the number of the principal that joined


class Group(msgspec.Struct, eq=False):
    """A group and its offsets: a classic group, or one with members in `consumer` or `streams`."""

    group_id: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str  # a member id, "" for none
    members: dict[str, Member]  # in the order in which they came
    static_members: dict[str, str]  # group instance id -> member id
    protocol_counts: dict[str, int]  # protocol name -> how many members support it
    pending: dict[str, int]  # assigned member ids (KIP-394) -> when they expire
    fenced: dict[str, None]  # ids of replaced static members, the newest last
    offsets: dict[str, dict[int, Committed]]  # topic name -> partition
    join_deadline_ms: int = 0  # in PreparingRebalance: when that ends at the latest
    initial_delay_ms: int = 0  # > 0: the first rebalance of an empty group waits so long for more members
    initial_remaining_ms: int = 0  # how much longer that may be extended
    newcomer: bool = False  # whether a new member came during that delay
    sync_deadline_ms: int = 0  # when members that joined and did not sync are removed; 0 if there are none
    consumer: ConsumerGroup | None = None  # of a consumer group; then `generation` is the group epoch
    streams: StreamsGroup | None = None  # of a streams group; then `generation` is the group epoch
    emptied_ms: int = -1  # uptime clock when the last member left; -1 if none did since OFFSET_EXPIRY_LEVEL
    static_since: dict[str, int] = {}  # instance id -> the entry by which it joined, from LATE_JOINS_LEVEL on
    owner: int = NOT_NAMED  # the number of the principal that made it


class Transaction(msgspec.Struct, eq=False):
    """The state of a transactional id; `partitions` and `offsets` belong to its ongoing transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    active_ms: int  # the producer clock when a producer was initialized or a transaction ended
    changed_sequence: int  # of that entry
    state: str = EMPTY
    started_ms: int = -1  # the machine's clock when it began; -1 unless it is ongoing
    started_sequence: int = 0  # of the entry with which the last one began
    previous: tuple[int, int] = (-1, -1)  # producer id and epoch before this same producer got the present ones
    ended: tuple[int, int, bool] | None = None  # end of the last one: producer id and epoch then, committed
    partitions: dict[PartitionKey, int] = {}  # -> its first offset in the partition, -1 while it has none
    offsets: dict[str, dict[TopicId, dict[int, Committed]]] = {}  # by group; they take effect when it is committed
    offset_count: int = 0
    owner: int = NOT_NAMED  # the number of the principal that made it


class Custody(msgspec.Struct, eq=False):
    """The custodian's lease, and how far archiving and snapshots have come."""

    holder: str = ""  # the author of the custodian's entries, "" while there is no custodian
    until_ms: int = 0  # by the machine's clock; from then on any replica may take over
    archived_sequence: int = 0  # all entries up to this one are in the archive
    snapshots: list[int] = []  # the sequences of the newest verified snapshots, ascending, at most SNAPSHOTS_KEPT
    snapshot_ms: int = 0  # the clock when the newest was recorded; while there is none, when custody was first taken


class State(msgspec.Struct, eq=False):
    """The whole state that the journal leads to."""

    segments: Segments
    sequence: int = 0  # of the last applied entry
    clock_ms: int = 0
    leader_epoch: int = LEADER_EPOCH
    topics: dict[str, Topic] = {}
    topics_by_id: dict[TopicId, Topic] = {}
    topics_by_metric_name: dict[str, Topic] = {}  # '.' and '_' collide there, as in Kafka
    deleted_topics: dict[TopicId, int] = {}  # -> when the id may be removed
    pending_delete: deque[Partition] = msgspec.field(
        default_factory=deque
    )  # of deleted topics, with extents that are still to be dropped
    recoverable: dict[TopicId, RecoverableTopic] = {}  # in the order in which they were deleted
    trimmed: deque[Partition] = msgspec.field(
        default_factory=deque
    )  # with extents before the log start, or deleted since
    cluster_configs: dict[str, str] = {}  # defaults for all topics, as far as they were set
    cluster_altered_sequence: int = 0  # of the entry that set them last
    client_quotas: dict[Entity, dict[str, str]] = {}  # in the order in which entities got their first quotas
    quotas_altered_sequence: int = 0  # of the entry that last changed one
    users: dict[str, tuple[ScramVerifier, ...]] = {}  # each has one or more, in the order of mechanisms
    bindings: dict[AclBinding, None] = {}  # in the order in which they were made
    security_altered_sequence: int = 0  # of the entry that last changed users or bindings
    tokens: dict[str, DelegationToken] = {}  # by id, in the order in which they were changed
    tokens_altered_sequence: int = 0  # of the entry that last changed one
    first_expiry_ms: int = 0  # no token expires before; a lower bound, derived
    principals: dict[int, Principal] = msgspec.field(default_factory=lambda: {NOT_NAMED: Principal("")})
    principal_numbers: dict[str, int] = {}  # by name, without ANONYMOUS; derived
    next_principal: int = NOT_NAMED + 1
    unused_principals: dict[int, None] = {}  # that may have no entries any more; the next Ticks look
    tasks_ended_ms: "array[int]" = msgspec.field(default_factory=lambda: array("q", bytes(8 * TASKS)))
    task_leases: dict[int, Lease] = {}
    partitions_by_index: dict[int, Partition] = {}  # of recoverable topics, too; an index is valid in this process only
    next_index: int = 0
    partition_count: int = 0  # of all topics, also recoverable ones
    extent_count: int = 0
    commits: dict[SegmentId, RememberedCommit] = {}
    replacements: dict[SegmentId, Replacement] = {}  # by the job's first output
    leases: dict[str, JobLease] = {}  # by job
    leased: dict[SegmentId, str] = {}  # -> the job
    next_producer_id: int = FIRST_PRODUCER_ID
    producer_births: deque[tuple[int, int]] = msgspec.field(default_factory=deque)  # (producer clock, first id then)
    producer_count: int = 0
    producer_sweep: deque[Partition] = msgspec.field(default_factory=deque)  # partitions that have producers
    groups: dict[str, Group] = {}
    group_bytes: int = 0  # approximate size of all members and offsets, also of recoverable topics and transactions
    member_bytes: int = 0  # the part of the members, derived
    idle_groups: dict[str, int] = {}  # -> when to check whether it is still empty and without offsets
    lived_ms: int = 0  # the uptime clock (groups/timers.py), from OFFSET_EXPIRY_LEVEL on
    uptime_lag_ms: int = 0  # of the uptime clock behind the machine's clock, when it came to PRODUCERS_LEVEL
    ages: deque[tuple[int, int]] = msgspec.field(default_factory=deque)  # (uptime clock, last entry then), ascending
    expiry_round: deque[str] = msgspec.field(default_factory=deque)  # groups still to be checked for old offsets
    deadlines: dict[str, int] = {}  # group id -> the earliest of its deadlines
    alarms: list[tuple[int, str]] = []  # heap over `deadlines`; items that are no longer in `deadlines` are stale
    subscriptions: Subscriptions = msgspec.field(default_factory=Subscriptions)
    departed: dict[tuple[str, str], tuple[int, int]] = {}  # (group, member) -> (entry by which it left, when), in order
    custody: Custody = msgspec.field(default_factory=Custody)
    level: int = 0  # the level that all replicas understand; it never falls
    removed_sequence: int = 0  # of the last entry that removed committed offsets, from LATE_COMMANDS_LEVEL on
    transactions: dict[str, Transaction] = {}  # by transactional id, in the order of their `active_ms`
    transactions_by_producer: dict[int, Transaction] = {}
    transactions_by_group: dict[str, dict[str, None]] = {}  # group id -> transactional ids that have offsets for it
    ongoing: dict[str, Transaction] = {}
    transaction_alarms: list[tuple[int, str]] = []  # heap over the deadlines of `ongoing`; other items in it are stale
    transaction_partition_count: int = 0  # of all ongoing transactions
    aborted_count: int = 0  # aborted transactions that partitions still remember
    share_groups: dict[str, ShareGroup] = {}
    share_topics: dict[TopicId, dict[str, None]] = {}  # -> the share groups that have a position in it; derived
    # Share groups with pending dead letters -> their partitions with such; derived.
    dead_letters: dict[str, dict[tuple[TopicId, int], None]] = {}
    share_partition_count: int = 0  # of all share groups
    share_record_count: int = 0  # records in flight in all of them; for a group without members the holds count instead
    group_configs: dict[str, dict[str, str]] = {}  # by group id, of groups that have any
    group_configs_altered_sequence: int = 0  # of the entry that last changed any
    client_metrics: dict[str, dict[str, str]] = {}  # subscriptions to metrics of clients, by name
    metrics_altered_sequence: int = 0  # of the entry that last changed one
    limits: Limits = DEFAULT_LIMITS  # of the release: neither in snapshots nor in the hash of the state


class Changes(msgspec.Struct, eq=False):
    """The changes that one entry has made so far."""

    advanced: dict[tuple[TopicId, int], tuple[Partition, int]] = {}  # -> the high watermark before
    trimmed: dict[tuple[TopicId, int], Partition] = {}  # whose log start has moved
    topics: dict[str, None] = {}
    groups: dict[str, None] = {}
    share_locks_ended: int = 0  # acquired records of share groups whose locks ended without an acknowledgement


def new_state(limits: Limits = DEFAULT_LIMITS) -> State:
    """The state before the first journal entry."""
    return State(Segments(), limits=limits)
