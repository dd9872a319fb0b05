"""The commands and queries of each kind of sender; sequencers reject all others (ADR 0036).

A process that an attacker controls can do the work of its own kind, and nothing else. The subjects of one kind are in
the permissions of its user at NATS. A new command needs one line here, or it is internal to sequencers.
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AllocateProducer,
    AlterClientMetrics,
    AlterClientQuotas,
    AlterConfigs,
    AlterGroupConfigs,
    AlterShareOffsets,
    CommitOffsets,
    CommitSegment,
    CommitTxnOffsets,
    ConsumerHeartbeat,
    CreatePartitions,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteShareOffsets,
    DeleteTopic,
    DropExtents,
    EndDeadLetters,
    EndTaskLease,
    EndTxn,
    ExpireLogs,
    ExpireMember,
    InitTransactionalProducer,
    JoinGroup,
    LeaseJob,
    LeaveGroup,
    RaiseLevel,
    RecordArchived,
    RecordSnapshot,
    ReleaseCustody,
    ReleaseJob,
    RemoveSegments,
    ReplaceExtents,
    ShareHeartbeat,
    ShareRecords,
    StreamsHeartbeat,
    SyncGroup,
    TakeCustody,
    TakeTaskLease,
    Tick,
    UndeleteTopic,
)
from penstock.contracts.commands.delegation_tokens import CreateToken, ExpireToken, RenewToken
from penstock.contracts.commands.security import AlterScramCredentials, CreateAcls, DeleteAcls
from penstock.contracts.subjects import QUERY_NAMES, Sender

CommandType = type[msgspec.Struct]

SECURITY_COMMANDS: frozenset[CommandType] = frozenset({AlterScramCredentials, CreateAcls, DeleteAcls})
TOKEN_COMMANDS: frozenset[CommandType] = frozenset({CreateToken, RenewToken, ExpireToken})
# Only replicas propose these. From the bus, one of them could make a custodian purge entries that are not archived.
INTERNAL_COMMANDS: frozenset[CommandType] = frozenset(
    {TakeCustody, RecordArchived, RecordSnapshot, RaiseLevel, ReleaseCustody}
)
COMMANDS: Mapping[Sender, frozenset[CommandType]] = {
    Sender.CLIENT: SECURITY_COMMANDS
    | TOKEN_COMMANDS
    | {
        Tick,  # a gateway's barrier before it reads a plan
        CreateTopic,
        DeleteTopic,
        CreatePartitions,
        DeleteRecords,
        AlterConfigs,
        AlterGroupConfigs,
        AlterClientMetrics,
        AlterClientQuotas,
        AllocateProducer,
        InitTransactionalProducer,
        AddPartitionsToTxn,
        AddOffsetsToTxn,
        CommitTxnOffsets,
        EndTxn,
        JoinGroup,
        SyncGroup,
        LeaveGroup,
        ExpireMember,  # a member id that was given to a client whose connection is closed
        ConsumerHeartbeat,
        CommitOffsets,
        DeleteOffsets,
        DeleteGroup,
        ShareHeartbeat,
        StreamsHeartbeat,
        ShareRecords,
        EndDeadLetters,
        AlterShareOffsets,
        DeleteShareOffsets,
    },
    Sender.FLUSHER: frozenset({CommitSegment}),
    Sender.COMPACTOR: frozenset({LeaseJob, ReleaseJob, ReplaceExtents}),
    Sender.JANITOR: frozenset(
        {ExpireLogs, DropExtents, RemoveSegments, TakeTaskLease, EndTaskLease, LeaseJob, ReleaseJob}
    ),
    Sender.CONSOLE: frozenset(),
    Sender.ADMIN: SECURITY_COMMANDS | {UndeleteTopic, AlterClientQuotas, ExpireToken},
}
# The one subject of release 0.1 takes the commands of that release, from each sender that NATS lets use it.
COMMANDS_OF_ANY: frozenset[CommandType] = frozenset().union(*COMMANDS.values()) - SECURITY_COMMANDS - TOKEN_COMMANDS

SECURITY_QUERY = "security"  # has SCRAM verifiers
# Gateways and operators read everything. Flushers read nothing.
QUERIES: Mapping[Sender, tuple[str, ...]] = {
    Sender.CLIENT: (*QUERY_NAMES,),
    Sender.FLUSHER: (),
    Sender.COMPACTOR: ("logs", "metadata", "plan", "segment_extents", "segments"),
    Sender.JANITOR: ("condemned", "journal", "known_segments", "retention", "usage"),
    Sender.CONSOLE: (
        "deleted_topics",
        "describe_transactions",
        "group_survey",
        "plan",
        "segments",
        "topic_survey",
        "transactions",
        "usage",
    ),
    Sender.ADMIN: (*QUERY_NAMES,),
}


def not_allowed(commands: Iterable[msgspec.Struct], allowed: frozenset[CommandType]) -> str:
    """The name of the first command that is not allowed, "" if all are."""
    return next((type(command).__name__ for command in commands if type(command) not in allowed), "")
