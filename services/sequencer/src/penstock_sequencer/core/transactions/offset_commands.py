"""CommitTxnOffsets: offsets that a group's member commits with its transaction, with Kafka's rules on who may."""

from penstock.contracts.commands import CommitTxnOffsets, PerItem, Rejected
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.offset_commit import member_rejection, record_life
from penstock_sequencer.core.groups.pending_offsets import add_pending
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.limits import GROUP_ID_LENGTH_MAX
from penstock_sequencer.core.transactions.coordinator import add_group, find_transaction, is_late, stale


def commit_txn_offsets(state: State, command: CommitTxnOffsets, changes: Changes) -> PerItem | Rejected:
    """The offsets wait for the transaction's end; one refusal for each that cannot."""
    transaction = find_transaction(state, command)
    if isinstance(transaction, Rejected):
        return transaction
    rejection = _rejection(state, command)
    if rejection:
        return Rejected(rejection)
    if is_late(transaction, command.seen_sequence):
        return stale()
    if command.group_id not in transaction.offsets:
        if not command.adds:
            return Rejected(Rejection.INVALID_TXN_STATE, "the group was not added to the transaction")
        validation_error = add_group(state, transaction, command.group_id)
        if validation_error is not None:
            return validation_error
    group = state.groups.get(command.group_id)
    if group is not None:
        record_life(state, group, command.member_id)
    group_id, seen = command.group_id, command.seen_sequence
    return PerItem([add_pending(state, transaction, group_id, item, seen) for item in command.offsets])


def _rejection(state: State, command: CommitTxnOffsets) -> Rejection:
    """Kafka's: who names no member may commit, since the older versions of the protocol cannot name one."""
    if not 0 < len(command.group_id) <= GROUP_ID_LENGTH_MAX:
        return Rejection.INVALID_GROUP
    if command.group_id in state.share_groups:
        return Rejection.UNKNOWN_GROUP
    group = state.groups.get(command.group_id)
    is_nobody = command.generation < 0 and not command.member_id and command.group_instance_id is None
    if is_nobody:
        return Rejection.NONE
    if group is None:
        return Rejection.ILLEGAL_GENERATION if command.generation >= 0 else Rejection.NONE
    rejection = member_rejection(group, command)
    # A rebalance is no hindrance: who has the newest generation may commit, and its client knows no such answer.
    return Rejection.NONE if rejection == Rejection.REBALANCE_IN_PROGRESS else rejection
