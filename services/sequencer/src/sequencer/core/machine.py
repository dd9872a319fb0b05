"""The state machine: it applies journal entries, in order, to the state, and says what came of each command.

The rules that every part of it keeps:

 - Total: any command that can be decoded gets an outcome. A refusal is a value and leaves the state as it was, but for
   the clock and what its passing brings about. `apply_entry` never raises.
 - Pure: the same entries give the same state and the same outcomes, on every replica and in every run. So no clock, no
   chance, no I/O; dicts and lists are iterated, sets never are; integers only.
 - Time is the highest `now_ms` seen. Deadlines that it passes fire before the command that brought it is applied.
 - Idempotent by content: a command that is applied twice does no harm (contracts/commands.py says how for each).
 - Bounded: no command does unbounded work for what others left behind; sweeping is done a little with every Tick.
 - Told apart by level: a command that this code knows is applied whatever the level is, since journals written before
   there were levels hold it; a new meaning of an old command only from its level on (contracts/levels.py).

What holds of the state before and after every entry is written in `state.py`, the limits in `limits.py`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts import commands
from penstock.contracts.batches import SegmentRef
from penstock.contracts.commands import Command, Done, Outcome, Tick
from penstock.contracts.messages import PartitionAdvance
from sequencer.core import (
    chores,
    claims,
    client_quotas,
    commit,
    compaction,
    configs,
    consumer_group_commands,
    custody,
    deadlines,
    deletion,
    departures,
    dropping,
    forgetting,
    group_commands,
    group_configs,
    group_deadlines,
    group_offsets,
    levels,
    offset_deletion,
    producers,
    queries,
    retention,
    share_commands,
    share_offsets,
    share_records,
    topics,
    transaction_commits,
    transactions,
    watch,
)
from sequencer.core.limits import CLOCK_MS_MAX
from sequencer.core.markers import markers_among
from sequencer.core.partitions import last_stable_offset
from sequencer.core.state import Changes, Partition, State


class Effects(msgspec.Struct, frozen=True):
    """What an entry changed that others wait for; `groups` may now have an answer for somebody who waits."""

    partitions: list[PartitionAdvance]
    topics: list[str]
    groups: list[str]
    share_locks_ended: int = 0  # as in `Changes`, for who counts


def apply_entry(
    state: State, sequence: int, requests: list[list[Command]], *, announce: bool = True
) -> tuple[list[list[Outcome]], Effects]:
    """Apply the journal entry `sequence`; one list of outcomes per request, one outcome per command.

    Who has nothing to announce, as in a replay, saves a third of the time with `announce` false: the state is the same,
    the effects name no partitions.
    """
    state.sequence = sequence
    changes = Changes()
    outcomes = [[_apply(state, command, changes) for command in request] for request in requests]
    partitions = _advances(state, changes) if announce else []
    return outcomes, Effects(partitions, list(changes.topics), list(changes.groups), changes.share_locks_ended)


def _apply(state: State, command: Command, changes: Changes) -> Outcome:
    if state.clock_ms < command.now_ms <= CLOCK_MS_MAX:
        watch.pass_time(state, command.now_ms - state.clock_ms)
        state.clock_ms = command.now_ms
        group_deadlines.fire_deadlines(state, changes)
    return _APPLY[type(command)](state, command, changes)


def _tick(state: State, command: Tick, changes: Changes) -> Done:
    commit.forget_commits(state)
    claims.forget_claims(state)
    producers.sweep_producers(state)
    dropping.drop_waiting(state)
    deletion.forget_deleted_topics(state)
    transactions.end_overdue(state, changes)
    transactions.forget_transactions(state)
    offset_deletion.expire_offsets(state)
    deadlines.forget_idle_groups(state)
    departures.forget_departures(state)
    return Done()


# The second parameter of each function is the command class that it stands beside.
_APPLY: dict[type[Command], Callable[[State, Any, Changes], Outcome]] = {
    commands.Tick: _tick,
    commands.CommitSegment: commit.commit_segment,
    commands.CreateTopic: topics.create_topic,
    commands.DeleteTopic: deletion.delete_topic,
    commands.CreatePartitions: topics.create_partitions,
    commands.AllocateProducer: producers.allocate_producer,
    commands.JoinGroup: group_commands.join_group,
    commands.SyncGroup: group_commands.sync_group,
    commands.LeaveGroup: group_commands.leave_group,
    commands.ExpireMember: group_commands.expire_member,
    commands.CommitOffsets: group_offsets.commit_offsets,
    commands.DeleteGroup: group_commands.delete_group,
    commands.TakeCustody: custody.take_custody,
    commands.NoteArchived: custody.note_archived,
    commands.NoteSnapshot: custody.note_snapshot,
    commands.RaiseLevel: levels.raise_level,
    commands.ReleaseCustody: custody.release_custody,
    commands.ClaimJob: claims.claim_job,
    commands.ReleaseJob: claims.release_job,
    commands.ReplaceExtents: compaction.replace_extents,
    commands.ForgetSegments: forgetting.forget_segments,
    commands.TakeChore: chores.take_chore,
    commands.EndChore: chores.end_chore,
    commands.AlterConfigs: configs.alter_configs,
    commands.DeleteRecords: retention.delete_records,
    commands.ExpireLogs: retention.expire_logs,
    commands.DropExtents: deletion.drop_extents,
    commands.UndeleteTopic: deletion.undelete_topic,
    commands.InitTransactionalProducer: transactions.init_producer,
    commands.AddPartitionsToTxn: transactions.add_partitions,
    commands.AddOffsetsToTxn: transactions.add_offsets,
    commands.CommitTxnOffsets: transaction_commits.commit_txn_offsets,
    commands.EndTxn: transactions.end_transaction,
    commands.DeleteOffsets: offset_deletion.delete_offsets,
    commands.ConsumerHeartbeat: consumer_group_commands.consumer_heartbeat,
    commands.AlterClientQuotas: client_quotas.alter_client_quotas,
    commands.ShareHeartbeat: share_commands.share_heartbeat,
    commands.ShareRecords: share_records.share_records,
    commands.AlterShareOffsets: share_offsets.alter_share_offsets,
    commands.DeleteShareOffsets: share_offsets.delete_share_offsets,
    commands.AlterGroupConfigs: group_configs.alter_group_configs,
}


def _advances(state: State, changes: Changes) -> list[PartitionAdvance]:
    """What partitions gained, and where logs start now; from a trim alone there are no extents to tell of."""
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
    """What the partition gained from offset `before` on, but for what is trimmed already."""
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
