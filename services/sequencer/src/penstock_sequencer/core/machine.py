"""The state machine: it applies journal entries to the state, in order, and returns the outcome of each command.

Every part of the machine keeps these rules:

 - Total: every command that can be decoded gets an outcome, and `apply_entry` never raises. A rejection is a value. A
   rejected command changes nothing, except that the clock advances and due deadlines fire.
 - Pure: the same entries give the same state and the same outcomes, on every replica and in every run. So the machine
   uses no clock, no randomness and no I/O. It iterates dicts and lists, never sets, and computes with integers only.
 - Time is the highest `now_ms` seen. Deadlines that it passes fire before the command that brought it is applied.
 - Idempotent by content: a command that is applied twice does no harm. `contracts/commands` explains how, for each one.
 - Bounded: no command does unbounded work to clean up after other commands. Each Tick cleans up a little.
 - Levels: the machine applies a command that it knows at every level, because journals older than the levels hold it. A
   new meaning of an old command applies only from its level on (contracts/levels.py).

`state/cluster.py` states the invariants of the state before and after every entry, `state/limits.py` its limits.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts import commands
from penstock.contracts.batches import SegmentRef
from penstock.contracts.commands import Command, Done, Outcome, Tick
from penstock.contracts.messages import PartitionAdvance
from penstock_sequencer.core import queries
from penstock_sequencer.core.all_groups import commands as all_groups
from penstock_sequencer.core.commits import segment_commit
from penstock_sequencer.core.groups import (
    classic_commands,
    classic_leave,
    consumer_commands,
    departed_members,
    offset_commit,
    offset_deletion,
    timers,
)
from penstock_sequencer.core.groups.streams import commands as streams_commands
from penstock_sequencer.core.log import producer_table, producers, reclaim, retention
from penstock_sequencer.core.log.control_markers import markers_among
from penstock_sequencer.core.log.partitions import last_stable_offset
from penstock_sequencer.core.maintenance import (
    compaction_leases,
    custody,
    feature_level,
    janitor_leases,
    replace_extents,
)
from penstock_sequencer.core.security import acls, tokens, users
from penstock_sequencer.core.share import (
    acquire_ack,
    commands as share_commands,
    dead_letters,
    offsets as share_offsets,
)
from penstock_sequencer.core.state import shares
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.limits import CLOCK_MS_MAX
from penstock_sequencer.core.topics import client_metrics, client_quotas, configs, deletion, topics
from penstock_sequencer.core.transactions import coordinator, lifecycle


class Effects(msgspec.Struct, frozen=True):
    """The changes of an entry that are announced; a request that waits for one of `groups` may now be answered."""

    partitions: list[PartitionAdvance]
    topics: list[str]
    groups: list[str]
    share_locks_ended: int = 0  # as in `Changes`, for a metric


def apply_entry(
    state: State, sequence: int, requests: list[list[Command]], *, announce: bool = True
) -> tuple[list[list[Outcome]], Effects]:
    """Apply the journal entry `sequence`; return one list of outcomes per request, with one outcome per command.

    With `announce` false the state is the same, but the effects name no partitions. That saves a third of the time when
    nothing is announced, as in a replay of the journal.
    """
    state.sequence = sequence
    changes = Changes()
    outcomes = [[_apply(state, command, changes) for command in request] for request in requests]
    partitions = _advances(state, changes) if announce else []
    return outcomes, Effects(partitions, list(changes.topics), list(changes.groups), changes.share_locks_ended)


def _apply(state: State, command: Command, changes: Changes) -> Outcome:
    # A later time than CLOCK_MS_MAX is from a broken clock. The machine's clock would stand still after it.
    if state.clock_ms < command.now_ms <= CLOCK_MS_MAX:
        timers.pass_time(state, command.now_ms - state.clock_ms)
        state.clock_ms = command.now_ms
        all_groups.fire_deadlines(state, changes)
    return APPLY[type(command)](state, command, changes)


def _tick(state: State, command: Tick, changes: Changes) -> Done:
    # Each of these steps does bounded work, so that commits do not wait for a Tick.
    segment_commit.remove_commits(state)
    compaction_leases.remove_leases(state)
    producer_table.sweep_producers(state)
    reclaim.drop_waiting(state)
    deletion.remove_deleted_topics(state)
    lifecycle.end_overdue(state, changes)
    lifecycle.remove_transactions(state)
    offset_deletion.expire_offsets(state)
    timers.remove_idle_groups(state)
    departed_members.expire_departed(state)
    tokens.remove_expired_tokens(state)
    shares.remove_unused(state)
    return Done()


# The second parameter of each function is an instance of the command class in its key.
APPLY: dict[type[Command], Callable[[State, Any, Changes], Outcome]] = {
    commands.Tick: _tick,
    commands.CommitSegment: segment_commit.commit_segment,
    commands.CreateTopic: topics.create_topic,
    commands.DeleteTopic: deletion.delete_topic,
    commands.CreatePartitions: topics.create_partitions,
    commands.AllocateProducer: producers.allocate_producer,
    commands.JoinGroup: classic_commands.join_group,
    commands.SyncGroup: classic_commands.sync_group,
    commands.LeaveGroup: classic_leave.leave_group,
    commands.ExpireMember: all_groups.expire_member,
    commands.CommitOffsets: offset_commit.commit_offsets,
    commands.DeleteGroup: all_groups.delete_group,
    commands.TakeCustody: custody.take_custody,
    commands.RecordArchived: custody.record_archived,
    commands.RecordSnapshot: custody.record_snapshot,
    commands.RaiseLevel: feature_level.raise_level,
    commands.ReleaseCustody: custody.release_custody,
    commands.LeaseJob: compaction_leases.lease_job,
    commands.ReleaseJob: compaction_leases.release_job,
    commands.ReplaceExtents: replace_extents.replace_extents,
    commands.RemoveSegments: reclaim.remove_segments,
    commands.TakeTaskLease: janitor_leases.take_task_lease,
    commands.EndTaskLease: janitor_leases.end_task_lease,
    commands.AlterConfigs: configs.alter_configs,
    commands.DeleteRecords: retention.delete_records,
    commands.ExpireLogs: retention.expire_logs,
    commands.DropExtents: deletion.drop_extents,
    commands.UndeleteTopic: deletion.undelete_topic,
    commands.InitTransactionalProducer: coordinator.init_producer,
    commands.AddPartitionsToTxn: coordinator.add_partitions,
    commands.AddOffsetsToTxn: coordinator.add_offsets,
    commands.CommitTxnOffsets: coordinator.commit_txn_offsets,
    commands.EndTxn: coordinator.end_transaction,
    commands.DeleteOffsets: offset_deletion.delete_offsets,
    commands.ConsumerHeartbeat: consumer_commands.consumer_heartbeat,
    commands.AlterClientQuotas: client_quotas.alter_client_quotas,
    commands.ShareHeartbeat: share_commands.share_heartbeat,
    commands.ShareRecords: acquire_ack.share_records,
    commands.AlterShareOffsets: share_offsets.alter_share_offsets,
    commands.DeleteShareOffsets: share_offsets.delete_share_offsets,
    commands.AlterGroupConfigs: configs.alter_group_configs,
    commands.AlterClientMetrics: client_metrics.alter_client_metrics,
    commands.AlterScramCredentials: users.alter_scram_credentials,
    commands.CreateAcls: acls.create_acls,
    commands.DeleteAcls: acls.delete_acls,
    commands.CreateToken: tokens.create_token,
    commands.RenewToken: tokens.renew_token,
    commands.ExpireToken: tokens.expire_token,
    commands.StreamsHeartbeat: streams_commands.streams_heartbeat,
    commands.EndDeadLetters: dead_letters.end_dead_letters,
}


def _advances(state: State, changes: Changes) -> list[PartitionAdvance]:
    """The new extents and log starts of changed partitions; a partition that was only trimmed has no new extents."""
    refs: dict[int, SegmentRef] = {}
    moved = {key: partition.high_watermark for key, partition in changes.trimmed.items()}
    partitions = dict(changes.trimmed)
    for key, (partition, before) in changes.advanced.items():
        if partition.high_watermark > before:
            moved[key] = before
            partitions[key] = partition
    return [
        _advance(state, partition, moved[key], refs) for key, partition in partitions.items() if not partition.deleted
    ]


def _advance(state: State, partition: Partition, before: int, refs: dict[int, SegmentRef]) -> PartitionAdvance:
    """The extents that the partition gained from offset `before` on, without those that are trimmed already."""
    first, end = partition.extents.find_offset(max(before, partition.log_start_offset)), partition.extents.end
    return PartitionAdvance(
        partition.topic_id,
        partition.number,
        partition.log_start_offset,
        partition.high_watermark,
        last_stable_offset(partition),
        [queries.extent(state, partition, row, refs) for row in range(first, end)],
        markers_among(partition, first, end),
    )
