"""Batches of transactional producers: each is checked against the transaction of its producer first."""

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchResult
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.producers import Origin, accept, find_repeated
from penstock_sequencer.core.state.cluster import ONGOING, Partition, State, Transaction
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from penstock_sequencer.core.transactions.lifecycle import add_partition, room_rejection

_NO_TRANSACTION = BatchResult(Rejection.INVALID_TXN_STATE)
_NO_PRODUCER = BatchResult(Rejection.INVALID_PRODUCER_MAPPING)
_FENCED = BatchResult(Rejection.PRODUCER_FENCED)


def accept_transactional(
    state: State, partition: Partition, batch: BatchMeta, offset: int, origin: Origin
) -> BatchResult | None:
    """As `accept`: None if the batch is the next one of its producer's transaction, else the result to answer."""
    transaction = state.transactions_by_producer.get(batch.producer_id)
    if transaction is None:
        return _NO_PRODUCER
    if not batch.attributes & TRANSACTIONAL:
        return _NO_TRANSACTION
    if batch.producer_epoch != transaction.epoch:
        return _FENCED
    transactions = partition.transactions
    if transactions is not None and batch.producer_id in transactions.open:
        return accept(state, partition, batch, offset, origin)
    return _accept_first(state, partition, transaction, batch, offset, origin)


def _accept_first(
    state: State, partition: Partition, transaction: Transaction, batch: BatchMeta, offset: int, origin: Origin
) -> BatchResult | None:
    """Accept the first records of the transaction in the partition, or answer a repeated batch of the one before."""
    repeated = find_repeated(partition, batch)
    if repeated is not None:
        return repeated
    key = (partition.topic_id, partition.number)
    is_added = transaction.state == ONGOING and key in transaction.partitions
    if not is_added and not batch.adds_partition:
        return _NO_TRANSACTION
    rejection = Rejection.NONE if is_added else room_rejection(state, transaction, 1)
    if rejection:
        return BatchResult(rejection)
    exception = accept(state, partition, batch, offset, origin)
    if exception is None:
        add_partition(state, transaction, key, offset)
        if partition.transactions is None:
            partition.transactions = PartitionTransactions()
        partition.transactions.open[batch.producer_id] = offset
    return exception
