"""Levels: what every replica of a cluster is known to understand, and so what may be journaled (ADR 0008).

A command that a replica does not know halts it. So a new command, or a new meaning of an old one, belongs to a level,
and a cluster reaches that level by a journaled command, once all its replicas say that they know it.
"""

from collections.abc import Iterable

import msgspec

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AlterClientQuotas,
    AlterConfigs,
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    CommitTxnOffsets,
    ConsumerHeartbeat,
    DeleteOffsets,
    DeleteRecords,
    DeleteShareOffsets,
    DropExtents,
    EndTaskLease,
    EndTxn,
    ExpireLogs,
    InitTransactionalProducer,
    LeaseJob,
    ReleaseJob,
    RemoveSegments,
    ReplaceExtents,
    ShareHeartbeat,
    ShareRecords,
    TakeTaskLease,
    UndeleteTopic,
)
from penstock.contracts.commands.journal import RaiseLevel, RecordArchived, RecordSnapshot, ReleaseCustody, TakeCustody
from penstock.contracts.commands.topics import CreateTopic
from penstock.contracts.configs.topics import (
    CONSUMER_ASSIGNMENT_INTERVAL,
    need_group_configs,
    need_inert_configs,
    need_key_compaction,
    need_retention,
)

NEWEST_LEVEL = 4  # that this code knows; 0 is what release 0.1.0 knew
# From this level on topics may have configurations of Kafka's that are without effect here.
INERT_CONFIGS_LEVEL = 3
# From this level on there are client quotas.
QUOTAS_LEVEL = 3
# From this level on there are share groups (KIP-932).
SHARE_GROUPS_LEVEL = 4
# Commands that are not here need level 0. `RaiseLevel` leads to a level, and so comes before it.
COMMAND_LEVELS: dict[type[msgspec.Struct], int] = {
    TakeCustody: 1,
    RecordArchived: 1,
    RecordSnapshot: 1,
    ReleaseCustody: 1,
    LeaseJob: 1,
    ReleaseJob: 1,
    ReplaceExtents: 1,
    AlterConfigs: 2,
    DeleteRecords: 2,
    ExpireLogs: 2,
    DropExtents: 2,
    UndeleteTopic: 2,
    RemoveSegments: 2,
    TakeTaskLease: 2,
    EndTaskLease: 2,
    InitTransactionalProducer: 3,
    AddPartitionsToTxn: 3,
    AddOffsetsToTxn: 3,
    CommitTxnOffsets: 3,
    EndTxn: 3,
    DeleteOffsets: 3,
    ConsumerHeartbeat: 3,
    AlterClientQuotas: QUOTAS_LEVEL,
    ShareHeartbeat: SHARE_GROUPS_LEVEL,
    ShareRecords: SHARE_GROUPS_LEVEL,
    AlterShareOffsets: SHARE_GROUPS_LEVEL,
    DeleteShareOffsets: SHARE_GROUPS_LEVEL,
    AlterGroupConfigs: SHARE_GROUPS_LEVEL,
}
# From this level on topics may have configurations that replicas below it refuse.
KEY_COMPACTION_LEVEL = 1
# From this level on commands that came late may be refused: by `seen_sequence`, or as a static member's former life.
LATE_COMMANDS_LEVEL = 1
# From this level on a lease of custody ends later with each renewal, also while the machine's clock stands still.
RISING_LEASE_LEVEL = 1
# From this level on there is retention, deleted topics may be kept for a while, and a step drops fewer extents.
JANITOR_LEVEL = 2
# From this level on there are groups of the consumer protocol (KIP-848).
CONSUMER_GROUPS_LEVEL = 3
# From this level on transactional batches belong to transactions.
TRANSACTIONS_LEVEL = 3
# From this level on it is known since when static members have their places, and who came before takes none.
LATE_JOINS_LEVEL = 3
# From this level on consumer groups' targets are made some time apart, and that is the cluster's to set.
ASSIGNMENT_INTERVAL_LEVEL = 4
# From this level on members that go over to the classic protocol take along what they have, not what they were to have.
HELD_GOES_OVER_LEVEL = 4
# From this level on snapshots hold which topics match patterns.
KEPT_MATCHES_LEVEL = 4
# From this level on offsets expire, and brokers' configurations of groups are the cluster's to set.
OFFSET_EXPIRY_LEVEL = 3


def level_of(commands: Iterable[Command]) -> int:
    """The level that a cluster must have reached before these may be journaled."""
    return max(map(_level, commands), default=0)


def _level(command: Command) -> int:
    if type(command) is CreateTopic:
        return level_of_configs(command.configs)
    return COMMAND_LEVELS.get(type(command), 0)


def level_of_configs(configs: dict[str, str]) -> int:
    """The level that a cluster must have reached before a topic may have these configurations."""
    if need_inert_configs(configs):
        return INERT_CONFIGS_LEVEL
    if need_retention(configs):
        return JANITOR_LEVEL
    return KEY_COMPACTION_LEVEL if need_key_compaction(configs) else 0


def level_of_cluster_configs(configs: Iterable[str], changed: Iterable[str]) -> int:
    """The level that a cluster must have reached before these of its configurations may be changed, to be those."""
    if CONSUMER_ASSIGNMENT_INTERVAL in (*configs, *changed):  # replicas below it refuse also to unset it
        return ASSIGNMENT_INTERVAL_LEVEL
    return OFFSET_EXPIRY_LEVEL if need_group_configs(configs) else 0


def unknown_level(requests: Iterable[Iterable[Command]], known_level: int) -> int | None:
    """The level that an entry raises the cluster to, if that is more than a replica knows."""
    for request in requests:
        for command in request:
            if type(command) is RaiseLevel and command.level > known_level:
                return command.level
    return None
