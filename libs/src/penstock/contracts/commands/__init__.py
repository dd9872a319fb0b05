"""Commands that change the state of a cluster, and the outcomes that the state machine answers.

Every command is idempotent by its content, so a retry through another replica does no harm. Time enters the state
machine only as `now_ms` (milliseconds since 1970, the proposer's clock). Each module of this package holds the commands
of one domain; import all of them from here. Start with `log` (commits) and `topics`.
"""

import msgspec

from penstock.contracts.commands.compaction import (
    LeaseJob as LeaseJob,
    OutputSegment as OutputSegment,
    ReleaseJob as ReleaseJob,
    ReplacedRun as ReplacedRun,
    ReplaceExtents as ReplaceExtents,
)
from penstock.contracts.commands.consumer_groups import (
    JOIN_EPOCH as JOIN_EPOCH,
    LEAVE_EPOCH as LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH as LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerHeartbeat as ConsumerHeartbeat,
    ConsumerMembership as ConsumerMembership,
    TopicPartitions as TopicPartitions,
)
from penstock.contracts.commands.delegation_tokens import (
    CreateToken as CreateToken,
    DelegationToken as DelegationToken,
    ExpireToken as ExpireToken,
    RenewToken as RenewToken,
    TokenCreated as TokenCreated,
    TokenExpiry as TokenExpiry,
)
from penstock.contracts.commands.groups import (
    CommitOffsets as CommitOffsets,
    DeleteGroup as DeleteGroup,
    ExpireMember as ExpireMember,
    GroupProtocol as GroupProtocol,
    Joined as Joined,
    JoinedMember as JoinedMember,
    JoinGroup as JoinGroup,
    LeaveGroup as LeaveGroup,
    LeavingMember as LeavingMember,
    MemberAssignment as MemberAssignment,
    MemberIdRequired as MemberIdRequired,
    Synced as Synced,
    SyncGroup as SyncGroup,
    Waiting as Waiting,
)
from penstock.contracts.commands.janitor import (
    LOGS_PER_COMMAND_MAX as LOGS_PER_COMMAND_MAX,
    MAINTENANCE_TASK as MAINTENANCE_TASK,
    NO_TASK as NO_TASK,
    RETENTION_TASK as RETENTION_TASK,
    SEGMENTS_REMOVED_MAX as SEGMENTS_REMOVED_MAX,
    SHARD_TASKS as SHARD_TASKS,
    TASKS as TASKS,
    DropExtents as DropExtents,
    EndTaskLease as EndTaskLease,
    ExpireLogs as ExpireLogs,
    ExtentsDropped as ExtentsDropped,
    RemoveSegments as RemoveSegments,
    TakeTaskLease as TakeTaskLease,
    TaskLeaseTaken as TaskLeaseTaken,
)
from penstock.contracts.commands.journal import (
    HOUSEKEEPING as HOUSEKEEPING,
    RaiseLevel as RaiseLevel,
    RecordArchived as RecordArchived,
    RecordSnapshot as RecordSnapshot,
    ReleaseCustody as ReleaseCustody,
    TakeCustody as TakeCustody,
    Tick as Tick,
)
from penstock.contracts.commands.log import (
    COMMIT_LEASE_MS as COMMIT_LEASE_MS,
    TO_HIGH_WATERMARK as TO_HIGH_WATERMARK,
    AllocateProducer as AllocateProducer,
    CommitSegment as CommitSegment,
    DeleteRecords as DeleteRecords,
    LogOffset as LogOffset,
    LogRef as LogRef,
    LogsTrimmed as LogsTrimmed,
    LogTrimmed as LogTrimmed,
    ProducerAllocated as ProducerAllocated,
    SegmentCommitted as SegmentCommitted,
)
from penstock.contracts.commands.offsets import (
    DeletedOffset as DeletedOffset,
    DeleteOffsets as DeleteOffsets,
    OffsetToCommit as OffsetToCommit,
)
from penstock.contracts.commands.outcomes import Done as Done, PerItem as PerItem, Rejected as Rejected
from penstock.contracts.commands.quotas import (
    AlterClientQuotas as AlterClientQuotas,
    QuotaChange as QuotaChange,
    QuotaPart as QuotaPart,
)
from penstock.contracts.commands.security import (
    AclsDeleted as AclsDeleted,
    AlterScramCredentials as AlterScramCredentials,
    CreateAcls as CreateAcls,
    DeleteAcls as DeleteAcls,
    ScramDeletion as ScramDeletion,
    ScramMechanism as ScramMechanism,
    ScramUpsertion as ScramUpsertion,
    ScramVerifier as ScramVerifier,
)
from penstock.contracts.commands.share import (
    NO_ACQUISITION as NO_ACQUISITION,
    NO_OFFSET as NO_OFFSET,
    NO_TICKET as NO_TICKET,
    SHARE_PARTITIONS_PER_COMMAND_MAX as SHARE_PARTITIONS_PER_COMMAND_MAX,
    SHARE_RANGES_MAX as SHARE_RANGES_MAX,
    SHARE_STARTS_MAX as SHARE_STARTS_MAX,
    AcknowledgedRange as AcknowledgedRange,
    AcknowledgeType as AcknowledgeType,
    AcquiredRange as AcquiredRange,
    AlterShareOffsets as AlterShareOffsets,
    DeadRecords as DeadRecords,
    DeleteShareOffsets as DeleteShareOffsets,
    EndDeadLetters as EndDeadLetters,
    EndedDeadLetters as EndedDeadLetters,
    OffsetRange as OffsetRange,
    RecordsShared as RecordsShared,
    SharedPartition as SharedPartition,
    ShareHeartbeat as ShareHeartbeat,
    ShareMembership as ShareMembership,
    ShareOffset as ShareOffset,
    SharePartition as SharePartition,
    ShareRecords as ShareRecords,
    ShareStart as ShareStart,
    ShareStarts as ShareStarts,
)
from penstock.contracts.commands.streams_groups import (
    EndpointPartitions as EndpointPartitions,
    InternalTopic as InternalTopic,
    OwnedTasks as OwnedTasks,
    StreamsHeartbeat as StreamsHeartbeat,
    StreamsMembership as StreamsMembership,
    StreamsStatus as StreamsStatus,
    Subtopology as Subtopology,
    TaskIds as TaskIds,
    TaskOffset as TaskOffset,
    Topology as Topology,
)
from penstock.contracts.commands.topics import (
    AlterClientMetrics as AlterClientMetrics,
    AlterConfigs as AlterConfigs,
    AlterGroupConfigs as AlterGroupConfigs,
    ConfigChange as ConfigChange,
    ConfigOperation as ConfigOperation,
    CreatePartitions as CreatePartitions,
    CreateTopic as CreateTopic,
    DeleteTopic as DeleteTopic,
    TopicCreated as TopicCreated,
    UndeleteTopic as UndeleteTopic,
)
from penstock.contracts.commands.transactions import (
    NO_EPOCH as NO_EPOCH,
    AddOffsetsToTxn as AddOffsetsToTxn,
    AddPartitionsToTxn as AddPartitionsToTxn,
    CommitTxnOffsets as CommitTxnOffsets,
    EndTxn as EndTxn,
    InitTransactionalProducer as InitTransactionalProducer,
    TransactionEnded as TransactionEnded,
    TransactionPartition as TransactionPartition,
)

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
    | RecordArchived
    | RecordSnapshot
    | RaiseLevel
    | ReleaseCustody
    | LeaseJob
    | ReleaseJob
    | ReplaceExtents
    | AlterConfigs
    | DeleteRecords
    | ExpireLogs
    | DropExtents
    | UndeleteTopic
    | RemoveSegments
    | TakeTaskLease
    | EndTaskLease
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
    | AlterClientMetrics
    | AlterScramCredentials
    | CreateAcls
    | DeleteAcls
    | CreateToken
    | RenewToken
    | ExpireToken
    | StreamsHeartbeat
    | EndDeadLetters
)


Outcome = (
    Done
    | Rejected
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
    | TaskLeaseTaken
    | TransactionEnded
    | ConsumerMembership
    | ShareMembership
    | RecordsShared
    | AclsDeleted
    | TokenCreated
    | TokenExpiry
    | StreamsMembership
)


class CommandRequest(msgspec.Struct, frozen=True, array_like=True):
    """Commands for one journal entry, applied in order, after the entry `min_sequence`, which the sender has seen."""

    commands: list[Command]
    min_sequence: int = 0
    trace: str = ""  # the span that waits for the outcomes, if one is sampled; not journaled (ADR 0051)


class CommandReply(msgspec.Struct, frozen=True, array_like=True):
    """One outcome per command, as of journal sequence `sequence`; with a `failure` the outcomes are unknown."""

    sequence: int
    outcomes: list[Outcome]
    failure: str | None = None
    clock_ms: int = 0  # the state machine's clock when this was sent; 0: not given
