"""Commands that change the virtual cluster's state, and the outcomes that the state machine answers.

Every command is idempotent by its content, so one that is sent again through another replica does no harm. Time
enters the state machine only as `now_ms` (milliseconds since 1970, the proposer's clock).
"""

import msgspec

from penstock.contracts.batches import BatchResult, BatchRun
from penstock.contracts.compaction_commands import ClaimJob as ClaimJob
from penstock.contracts.compaction_commands import OutputSegment as OutputSegment
from penstock.contracts.compaction_commands import ReleaseJob as ReleaseJob
from penstock.contracts.compaction_commands import ReplacedRun as ReplacedRun
from penstock.contracts.compaction_commands import ReplaceExtents as ReplaceExtents
from penstock.contracts.consumer_group_commands import ConsumerHeartbeat as ConsumerHeartbeat
from penstock.contracts.consumer_group_commands import ConsumerMembership as ConsumerMembership
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.janitor_commands import AlterConfigs as AlterConfigs
from penstock.contracts.janitor_commands import ChoreTaken as ChoreTaken
from penstock.contracts.janitor_commands import DeleteRecords as DeleteRecords
from penstock.contracts.janitor_commands import DropExtents as DropExtents
from penstock.contracts.janitor_commands import EndChore as EndChore
from penstock.contracts.janitor_commands import ExpireLogs as ExpireLogs
from penstock.contracts.janitor_commands import ExtentsDropped as ExtentsDropped
from penstock.contracts.janitor_commands import ForgetSegments as ForgetSegments
from penstock.contracts.janitor_commands import LogsTrimmed as LogsTrimmed
from penstock.contracts.janitor_commands import TakeChore as TakeChore
from penstock.contracts.janitor_commands import UndeleteTopic as UndeleteTopic
from penstock.contracts.offsets import DeletedOffset as DeletedOffset
from penstock.contracts.offsets import DeleteOffsets as DeleteOffsets
from penstock.contracts.offsets import OffsetToCommit as OffsetToCommit
from penstock.contracts.quota_commands import AlterClientQuotas as AlterClientQuotas
from penstock.contracts.refusals import Refusal
from penstock.contracts.share_groups import AlterGroupConfigs as AlterGroupConfigs
from penstock.contracts.share_groups import AlterShareOffsets as AlterShareOffsets
from penstock.contracts.share_groups import DeleteShareOffsets as DeleteShareOffsets
from penstock.contracts.share_groups import RecordsShared as RecordsShared
from penstock.contracts.share_groups import ShareHeartbeat as ShareHeartbeat
from penstock.contracts.share_groups import ShareMembership as ShareMembership
from penstock.contracts.share_groups import ShareRecords as ShareRecords
from penstock.contracts.transaction_commands import AddOffsetsToTxn as AddOffsetsToTxn
from penstock.contracts.transaction_commands import AddPartitionsToTxn as AddPartitionsToTxn
from penstock.contracts.transaction_commands import CommitTxnOffsets as CommitTxnOffsets
from penstock.contracts.transaction_commands import EndTxn as EndTxn
from penstock.contracts.transaction_commands import InitTransactionalProducer as InitTransactionalProducer
from penstock.contracts.transaction_commands import TransactionEnded as TransactionEnded
from penstock.contracts.transaction_commands import TransactionPartition as TransactionPartition


class Tick(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Time passes: deadlines of the machine fire."""

    now_ms: int


class CommitSegment(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A stored level-0 segment takes its place in the order; runs are sorted by (topic id, partition)."""

    now_ms: int
    segment_id: SegmentId
    size_bytes: int
    writer: str
    zone: str
    runs: list[BatchRun]


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A new topic; `partitions` -1 takes the default."""

    now_ms: int
    name: str
    topic_id: TopicId
    partitions: int
    configs: dict[str, str]


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A topic goes, by name or, with an empty name, by id."""

    now_ms: int
    name: str
    topic_id: TopicId


class CreatePartitions(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A topic grows to `count` partitions."""

    now_ms: int
    name: str
    count: int


class AllocateProducer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A producer id that nobody had before, with epoch 0. Sent twice it gives two ids, which does no harm."""

    now_ms: int


class GroupProtocol(msgspec.Struct, frozen=True, array_like=True):
    """An assignment strategy that a member supports, and what it has to say for it."""

    name: str
    metadata: bytes


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A member (re)joins a classic group.

    With `member_id` empty the member gets `new_member_id`, which the gateway made: so a command sent again makes no
    second member. With an instance id it takes the place of who has that, if its sender had seen that one come.
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


class MemberAssignment(msgspec.Struct, frozen=True, array_like=True):
    """What the leader assigns to one member, opaque."""

    member_id: str
    assignment: bytes


class SyncGroup(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A member asks for its assignment; the leader brings everybody's."""

    now_ms: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: list[MemberAssignment]


class LeavingMember(msgspec.Struct, frozen=True, array_like=True):
    """A member that leaves, by member id, or by instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Members leave a group."""

    now_ms: int
    group_id: str
    members: list[LeavingMember]
    seen_sequence: int = -1  # as in `CommitOffsets`


class ExpireMember(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A member was not heard from for its session time-out; void if the machine saw it after `active_sequence`."""

    now_ms: int
    group_id: str
    member_id: str
    active_sequence: int


class CommitOffsets(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A group's offsets; generation -1 with an empty member id is a commit from outside the group."""

    now_ms: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    seen_sequence: int = -1  # the newest entry that its sender knew of when it was asked; -1: not told


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """An empty group and its offsets go."""

    now_ms: int
    group_id: str
    seen_sequence: int = -1  # as in `CommitOffsets`


class TakeCustody(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A replica wants to keep the journal's house (archive, snapshots, purge), or to go on with it.

    A lease that ends at `dead_until_ms` is over: by its own clock the author saw it unchanged for longer than a lease
    lasts, whatever the machine's clock says.
    """

    now_ms: int
    author: str  # of journal entries: one life of one replica
    dead_until_ms: int = -1


class NoteArchived(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The custodian has archived all entries up to `sequence`."""

    now_ms: int
    author: str
    sequence: int


class NoteSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The custodian has stored the snapshot taken after entry `sequence`, and read it back."""

    now_ms: int
    author: str
    sequence: int


class RaiseLevel(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Every replica knows commands up to this level, and may be given them from now on."""

    now_ms: int
    level: int
    is_new: bool = False  # the cluster: its journal had no entries when the author came


class ReleaseCustody(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """The custodian ends, so that another replica need not wait for its lease to be over."""

    now_ms: int
    author: str


Command = (
    Tick
    | CommitSegment
    | CreateTopic
    | DeleteTopic
    | CreatePartitions
    | AllocateProducer
    | JoinGroup
    | SyncGroup
    | LeaveGroup
    | ExpireMember
    | CommitOffsets
    | DeleteGroup
    | TakeCustody
    | NoteArchived
    | NoteSnapshot
    | RaiseLevel
    | ReleaseCustody
    | ClaimJob
    | ReleaseJob
    | ReplaceExtents
    | AlterConfigs
    | DeleteRecords
    | ExpireLogs
    | DropExtents
    | UndeleteTopic
    | ForgetSegments
    | TakeChore
    | EndChore
    | InitTransactionalProducer
    | AddPartitionsToTxn
    | AddOffsetsToTxn
    | CommitTxnOffsets
    | EndTxn
    | DeleteOffsets
    | ConsumerHeartbeat
    | AlterClientQuotas
    | ShareHeartbeat
    | ShareRecords
    | AlterShareOffsets
    | DeleteShareOffsets
    | AlterGroupConfigs
)
# What sequencers journal by themselves, whether anything happens or not: nothing worth an archive or a snapshot.
HOUSEKEEPING = (Tick, TakeCustody, NoteArchived, NoteSnapshot, RaiseLevel, ReleaseCustody)


class Done(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Accepted, with nothing more to say."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Refused, and nothing changed."""

    refusal: Refusal
    message: str = ""


class SegmentCommitted(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """One list per run, one result per batch, in the command's order. The same again for the same segment id."""

    runs: list[list[BatchResult]]


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The topic as it now is."""

    topic_id: TopicId
    partitions: int
    configs: dict[str, str]


class ProducerAllocated(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A fresh producer id, or a fresh epoch of one."""

    producer_id: int
    producer_epoch: int


class JoinedMember(msgspec.Struct, frozen=True, array_like=True):
    """A member as its leader gets to see it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The member is in this generation; `members` is filled for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: list[JoinedMember]
    skip_assignment: bool = False  # KIP-814: a static leader came back, nothing is to be assigned anew


class Synced(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Waiting(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Accepted; ask `group_wait` with these two until there is an answer."""

    member_id: str
    generation: int  # the generation at which the member began to wait


class MemberIdRequired(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Join again with this member id (KIP-394)."""

    member_id: str


class PerItem(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """One refusal (or NONE) per item of the command, in its order: offsets to commit, members that leave."""

    refusals: list[Refusal]


Outcome = (
    Done
    | Refused
    | SegmentCommitted
    | TopicCreated
    | ProducerAllocated
    | Joined
    | Synced
    | Waiting
    | MemberIdRequired
    | PerItem
    | LogsTrimmed
    | ExtentsDropped
    | ChoreTaken
    | TransactionEnded
    | ConsumerMembership
    | ShareMembership
    | RecordsShared
)


class CommandRequest(msgspec.Struct, frozen=True, array_like=True):
    """Commands for one journal entry, applied in order."""

    commands: list[Command]


class CommandReply(msgspec.Struct, frozen=True, array_like=True):
    """One outcome per command, true at journal sequence `sequence`; or a failure, and the outcome is unknown."""

    sequence: int
    outcomes: list[Outcome]
    failure: str | None = None
    clock_ms: int = 0  # the machine's time when this was sent; 0 if it is not told
