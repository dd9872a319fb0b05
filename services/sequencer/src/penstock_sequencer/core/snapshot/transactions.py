"""Transactions in a snapshot."""

from penstock_sequencer.core.snapshot import shapes
from penstock_sequencer.core.state.cluster import ONGOING, State, Transaction


def written_transaction(transaction: Transaction) -> shapes.Transaction:
    """The shape of the transaction."""
    return shapes.Transaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.active_ms,
        transaction.changed_sequence,
        transaction.state,
        transaction.started_ms,
        transaction.started_sequence,
        transaction.previous,
        transaction.ended,
        [(*key, first_offset) for key, first_offset in transaction.partitions.items()],
        transaction.offsets,
    )


def read_transaction(written: shapes.Transaction) -> Transaction:
    """The transaction of this shape."""
    return Transaction(
        written.transactional_id,
        written.producer_id,
        written.epoch,
        written.timeout_ms,
        written.active_ms,
        written.changed_sequence,
        written.state,
        written.started_ms,
        written.started_sequence,
        written.previous,
        written.ended,
        {(topic_id, number): first_offset for topic_id, number, first_offset in written.partitions},
        written.offsets,
        sum(len(offsets) for pending in written.offsets.values() for offsets in pending.values()),
    )


def enter_transaction(state: State, transaction: Transaction) -> None:
    """Enter the transaction in all tables that find it."""
    state.transactions[transaction.transactional_id] = transaction
    state.transactions_by_producer[transaction.producer_id] = transaction
    if transaction.state == ONGOING:
        state.ongoing[transaction.transactional_id] = transaction
    state.transaction_partition_count += len(transaction.partitions)
    for group_id in transaction.offsets:
        state.transactions_by_group.setdefault(group_id, {})[transaction.transactional_id] = None
