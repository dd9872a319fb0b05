"""The outcomes of commands that would be rejected now, so that they need no place in the journal.

A preview changes nothing. It gives the outcome that the machine would give at this state. It gives None if the machine
might accept the command. Only commands of clients that can be large have one.

A rejected command in the journal may still delay the removal of an idle group, or make an empty group. Without the
entry that does not happen.
"""

from collections.abc import Callable
from typing import Any

from penstock.contracts import commands
from penstock.contracts.commands import Command, Outcome, Rejected
from penstock_sequencer.core.groups import classic_commands, classic_leave, offset_commit, offset_deletion
from penstock_sequencer.core.security import acls, tokens, users
from penstock_sequencer.core.share import acquire_ack, offsets as share_offsets
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.topics import client_metrics, client_quotas, configs, topics
from penstock_sequencer.core.transactions import coordinator

Preview = Callable[[State, Any], Outcome | None]


def _rejection_of(check: Callable[[State, Any], Outcome]) -> Preview:
    def preview_check(state: State, command: Command) -> Rejected | None:
        outcome = check(state, command)
        return outcome if isinstance(outcome, Rejected) else None

    return preview_check


# The second parameter of each function is an instance of the command class in its key.
PREVIEWS: dict[type[Command], Preview] = {
    commands.JoinGroup: classic_commands.preview_join,
    commands.SyncGroup: classic_commands.preview_sync,
    commands.LeaveGroup: classic_leave.preview_leave,
    commands.CommitOffsets: offset_commit.preview_commit,
    commands.DeleteOffsets: offset_deletion.preview_deletion,
    commands.AddPartitionsToTxn: coordinator.preview_partitions,
    commands.CommitTxnOffsets: coordinator.preview_txn_offsets,
    commands.ShareRecords: acquire_ack.preview_records,
    commands.AlterShareOffsets: share_offsets.preview_alter,
    commands.DeleteShareOffsets: share_offsets.preview_delete,
    commands.AlterScramCredentials: users.preview_scram_credentials,
    commands.CreateAcls: acls.preview_create,
    commands.DeleteAcls: acls.preview_delete,
    commands.CreateToken: tokens.preview_create_token,
    commands.RenewToken: tokens.preview_change_token,
    commands.ExpireToken: tokens.preview_change_token,
    commands.CreateTopic: _rejection_of(topics.check_create_topic),
    commands.CreatePartitions: _rejection_of(topics.check_create_partitions),
    commands.AlterConfigs: _rejection_of(configs.check_alter_configs),
    commands.AlterGroupConfigs: _rejection_of(configs.check_alter_group_configs),
    commands.AlterClientMetrics: _rejection_of(client_metrics.check_alter_client_metrics),
    commands.AlterClientQuotas: _rejection_of(client_quotas.check_alter_client_quotas),
}


def preview(state: State, command: Command) -> Outcome | None:
    """The outcome of a command that would be rejected now; None if it may be accepted, or has no preview."""
    find = PREVIEWS.get(type(command))
    return None if find is None else find(state, command)
