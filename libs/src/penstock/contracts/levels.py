"""Levels of a cluster: the commands that all its replicas understand, and that may be journaled (ADR 0008).

A command that a replica does not know halts it. So each new command, and each new meaning of an old one, belongs to a
level. A journaled command raises the cluster to a level once all its replicas report that they know it.
"""

from collections.abc import Collection, Iterable

import msgspec

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AlterClientMetrics,
    AlterClientQuotas,
    AlterConfigs,
    AlterGroupConfigs,
    AlterScramCredentials,
    AlterShareOffsets,
    Command,
    CommitTxnOffsets,
    ConsumerHeartbeat,
    CreateAcls,
    CreateToken,
    DeleteAcls,
    DeleteOffsets,
    DeleteRecords,
    DeleteShareOffsets,
    DropExtents,
    EndDeadLetters,
    EndTaskLease,
    EndTxn,
    ExpireLogs,
    ExpireToken,
    InitTransactionalProducer,
    LeaseJob,
    ReleaseJob,
    RemoveSegments,
    RenewToken,
    ReplaceExtents,
    ShareHeartbeat,
    ShareRecords,
    StreamsHeartbeat,
    TakeTaskLease,
    UndeleteTopic,
)
from penstock.contracts.commands.journal import RaiseLevel, RecordArchived, RecordSnapshot, ReleaseCustody, TakeCustody
from penstock.contracts.commands.topics import CreateTopic
from penstock.contracts.configs.brokers import is_of_broker
from penstock.contracts.configs.groups import STREAMS_CONFIGS, begins_by_time, need_later_group_configs
from penstock.contracts.configs.members import CONSUMER_ASSIGNMENT_INTERVAL, STREAMS_GROUP_CONFIGS, need_group_configs
from penstock.contracts.configs.replicas import REPLICAS
from penstock.contracts.configs.share_groups import (
    need_dead_letter_configs,
    need_later_share_configs,
    need_shared_topic_configs,
)
from penstock.contracts.configs.topics import (
    CHECK_RECORDS,
    CODEC_CLUSTER_NAMES,
    LANE,
    need_inert_configs,
    need_kafka_names,
    need_kafka_values,
    need_key_compaction,
    need_retention,
)
from penstock.contracts.newest_level import NEWEST_LEVEL as NEWEST_LEVEL

# From this level on topics may have Kafka configurations that are without effect here.
INERT_CONFIGS_LEVEL = 3
# From this level on there are subscriptions to metrics of clients (KIP-714).
CLIENT_METRICS_LEVEL = 9
# From this level on, topics, the cluster and groups may have configurations that only Kafka and later releases accept.
KAFKA_VALUES_LEVEL = 10
# From this level on there are streams groups (KIP-1071, ADR 0064).
STREAMS_GROUPS_LEVEL = 11
# From this level on, a commit may have ids of topics: an offset is rejected if its topic has another id now.
OFFSET_TOPIC_IDS_LEVEL = 12
# From this level on topics may have replicas that clients assigned (ADR 0066).
REPLICAS_LEVEL = 12
# From this level on share groups have dead letters, delayed redelivery and renewals that can be disabled (ADR 0068).
DEAD_LETTERS_LEVEL = 13
# From this level on the cluster may have configurations of single brokers (ADR 0069).
BROKER_CONFIGS_LEVEL = 14
# From this level on share groups may begin at a time, whose offsets are in heartbeats (ADR 0070).
SHARE_STARTS_LEVEL = 15
# From this level on, fewer records come at once to a share group when they are near the delivery limit.
THROTTLED_DELIVERIES_LEVEL = 15
# From this level on, the limit of subscriptions of a share group holds for its first member, too.
FIRST_SUBSCRIPTION_LEVEL = 15
# From this level on, a renewed lock of a share group ends in time, also if it is shorter now.
RENEWED_LOCKS_LEVEL = 15
# From this level on the topics that members of consumer groups name have limits, and count as the members' sizes.
SUBSCRIBED_TOPICS_LEVEL = 15
# From this level on a rejected JoinGroup does not convert an empty streams or consumer group. An accepted one takes the
# protocol type "streams" from the group, also if it only gets a member id.
KEPT_TOPOLOGIES_LEVEL = 15
# From this level on two heartbeats give a member of a streams group no more offsets of tasks than one. A target reads
# a limited number of all offsets.
TASK_OFFSETS_LEVEL = 15
# From this level on topics may have a lane (ADR 0045).
LANES_LEVEL = 8
# From this level on topics may switch off the check of records.
RECORD_CHECKS_LEVEL = 5
# From this level on retention moves a log's start inside a large extent, as `segment.bytes` demands.
SEGMENT_BYTES_LEVEL = 5
# From this level on there are client quotas.
QUOTAS_LEVEL = 3
# From this level on there are users with SCRAM verifiers, and access control lists (ADR 0034).
SECURITY_LEVEL = 6
# From this level on there are delegation tokens (ADR 0033).
TOKENS_LEVEL = 7
# From this level on there are share groups (KIP-932).
SHARE_GROUPS_LEVEL = 4
# From this level on a commit may have a latest time (ADR 0024).
COMMIT_LEASE_LEVEL = 5
# From this level on idempotent producers and transactional ids expire by the uptime clock, and full tables evict idle
# ones. A partition accepts a producer that is older than it at any sequence (ADR 0025).
PRODUCERS_LEVEL = 5
# From this level on members and offsets have smaller limits of size. The size of a member counts its names.
GROUP_SIZES_LEVEL = 5
# From this level on the names of flushers and zones without segments are removed.
NAME_REUSE_LEVEL = 5
# From this level on a batch of an aborted transaction is not answered as a duplicate (ADR 0029).
ABORTED_BATCHES_LEVEL = 5
# From this level on each principal has a share of the tables that all clients use (ADR 0040).
SHARES_LEVEL = 7
# Commands that are not in this table need level 0. So does `RaiseLevel`, because it comes before the level it sets.
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
    AlterScramCredentials: SECURITY_LEVEL,
    CreateAcls: SECURITY_LEVEL,
    DeleteAcls: SECURITY_LEVEL,
    CreateToken: TOKENS_LEVEL,
    RenewToken: TOKENS_LEVEL,
    ExpireToken: TOKENS_LEVEL,
    AlterClientMetrics: CLIENT_METRICS_LEVEL,
    StreamsHeartbeat: STREAMS_GROUPS_LEVEL,
    EndDeadLetters: DEAD_LETTERS_LEVEL,
}
# From this level on topics may have configurations that replicas of lower levels reject.
KEY_COMPACTION_LEVEL = 1
# From this level on late commands may be rejected: by `seen_sequence`, or as commands of a fenced static member.
LATE_COMMANDS_LEVEL = 1
# From this level on each renewal moves a custody lease's end, even if the state machine's clock stands still.
RISING_LEASE_LEVEL = 1
# From this level on there is retention, deleted topics may be recoverable, and one step removes fewer extents.
JANITOR_LEVEL = 2
# From this level on there are groups of the consumer protocol (KIP-848).
CONSUMER_GROUPS_LEVEL = 3
# From this level on transactional batches belong to transactions.
TRANSACTIONS_LEVEL = 3
# From this level on the state holds the entry by which each static member joined. A join that is older than that entry
# does not replace the member.
LATE_JOINS_LEVEL = 3
# From this level on a consumer group's targets are an interval apart, and the cluster can set that interval.
ASSIGNMENT_INTERVAL_LEVEL = 4
# From this level on a member that moves to the classic protocol keeps its current partitions, not its target.
HELD_GOES_OVER_LEVEL = 4
# From this level on snapshots contain the topics that match each pattern.
KEPT_MATCHES_LEVEL = 4
# From this level on offsets expire, and the cluster can set Kafka's broker configurations of groups.
OFFSET_EXPIRY_LEVEL = 3


def level_of(commands: Iterable[Command]) -> int:
    """The level that a cluster must have reached before these commands may be journaled."""
    return max(map(_level, commands), default=0)


def _level(command: Command) -> int:
    if type(command) is CreateTopic:
        return level_of_configs(command.configs)
    if type(command) is ShareHeartbeat and command.starts is not None:
        return SHARE_STARTS_LEVEL
    return COMMAND_LEVELS.get(type(command), 0)


def level_of_configs(configs: dict[str, str]) -> int:
    """The level that a cluster must have reached before a topic may have these configurations."""
    if need_shared_topic_configs(configs):
        return DEAD_LETTERS_LEVEL
    if REPLICAS in configs:
        return REPLICAS_LEVEL
    if need_kafka_values(configs):
        return KAFKA_VALUES_LEVEL
    if LANE in configs:
        return LANES_LEVEL
    if CHECK_RECORDS in configs:
        return RECORD_CHECKS_LEVEL
    if need_inert_configs(configs):
        return INERT_CONFIGS_LEVEL
    if need_retention(configs):
        return JANITOR_LEVEL
    return KEY_COMPACTION_LEVEL if need_key_compaction(configs) else 0


def level_of_changed_configs(configs: dict[str, str], changed: Collection[str]) -> int:
    """The level that a topic with `configs` needs after a change of the names in `changed`."""
    # Replicas of lower levels reject these even when they are unset. Other names have no such rule, as journals show.
    if need_shared_topic_configs(changed):
        return DEAD_LETTERS_LEVEL
    if REPLICAS in changed:
        return REPLICAS_LEVEL
    return KAFKA_VALUES_LEVEL if need_kafka_names(changed) else level_of_configs(configs)


def level_of_cluster_configs(configs: Iterable[str], changed: Iterable[str]) -> int:
    """The level that a cluster must have reached to have `configs` after a change of the names in `changed`."""
    if any(is_of_broker(name) for name in (*configs, *changed)):
        return BROKER_CONFIGS_LEVEL
    if need_dead_letter_configs((*configs, *changed)):
        return DEAD_LETTERS_LEVEL
    if any(name in STREAMS_GROUP_CONFIGS for name in (*configs, *changed)):
        return STREAMS_GROUPS_LEVEL
    if any(name in CODEC_CLUSTER_NAMES for name in (*configs, *changed)):
        return KAFKA_VALUES_LEVEL
    if CONSUMER_ASSIGNMENT_INTERVAL in (*configs, *changed):  # replicas of lower levels reject it even when it is unset
        return ASSIGNMENT_INTERVAL_LEVEL
    return OFFSET_EXPIRY_LEVEL if need_group_configs(configs) else 0


def level_of_group_configs(configs: dict[str, str], changed: Iterable[str]) -> int:
    """The level that a cluster must have reached for a group to have `configs` after a change of these names."""
    names = list(changed)
    if begins_by_time(configs):
        return SHARE_STARTS_LEVEL
    if need_later_share_configs(names):
        return DEAD_LETTERS_LEVEL
    if any(name in STREAMS_CONFIGS for name in names):
        return STREAMS_GROUPS_LEVEL
    return KAFKA_VALUES_LEVEL if need_later_group_configs(names) else 0


def unknown_level(requests: Iterable[Iterable[Command]], known_level: int) -> int | None:
    """The level to which an entry raises the cluster, if the replica does not know that level; else None."""
    for request in requests:
        for command in request:
            if type(command) is RaiseLevel and command.level > known_level:
                return command.level
    return None
