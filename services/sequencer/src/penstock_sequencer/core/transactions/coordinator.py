"""Transactions: who may write under a transactional id, what belongs to its transaction, how it ends (ADR 0012).

    Empty -- the first partition or group is added ----> Ongoing
    Ongoing -- EndTxn ---------------------------------> CompleteCommit or CompleteAbort
    Ongoing -- time is over ---------------------------> CompleteAbort; the producer may go on with the next epoch
    any -- a producer begins --------------------------> Empty, what was ongoing aborted, who was there fenced
    CompleteCommit, CompleteAbort -- as from Empty ----> Ongoing

There is nothing between Ongoing and its end: all markers of a transaction are written by the entry that ends it.

An epoch is a producer's right to write. Whoever has an older one than the transaction's is fenced in all partitions at
once, since each of its batches is held against the transaction and not only against what the partition remembers.
"""

from penstock.contracts.batches import NO_PRODUCER
from penstock.contracts.commands import (
    NO_EPOCH,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CommitTxnOffsets,
    Done,
    EndTxn,
    InitTransactionalProducer,
    PerItem,
    ProducerAllocated,
    Rejected,
    TransactionEnded,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.pending_offsets import commit_pending, release_pending
from penstock_sequencer.core.log.control_markers import write_marker
from penstock_sequencer.core.log.partitions import find_kept_partition, find_partition
from penstock_sequencer.core.log.producers import new_producer_id
from penstock_sequencer.core.state.cluster import (
    ABORTED,
    COMMITTED,
    EMPTY,
    ONGOING,
    Changes,
    PartitionKey,
    State,
    Transaction,
)
from penstock_sequencer.core.state.limits import (
    ABORTED_TRANSACTIONS_MAX,
    GROUP_ID_LENGTH_MAX,
    OFFSETS_PER_TRANSACTION_MAX,
    PARTITIONS_PER_TRANSACTION_MAX,
    PRODUCER_EPOCH_MAX,
    TRANSACTION_PARTITIONS_ENDED_PER_TICK,
    TRANSACTION_PARTITIONS_MAX,
    TRANSACTION_TIMEOUT_MAX_MS,
    TRANSACTIONAL_ID_EXPIRY_MS,
    TRANSACTIONAL_ID_LENGTH_MAX,
    TRANSACTIONS_MAX,
    TRANSACTIONS_REMOVED_PER_TICK,
)
from penstock_sequencer.core.transactions.timeouts import overdue, record_deadline

_NOBODY = (NO_PRODUCER, NO_EPOCH)
TransactionCommand = AddPartitionsToTxn | AddOffsetsToTxn | CommitTxnOffsets | EndTxn


def init_producer(state: State, command: InitTransactionalProducer, changes: Changes) -> ProducerAllocated | Rejected:
    """A producer id and an epoch that nobody else has; a transaction that is ongoing under the id is aborted."""
    validation_error = _init_validation_error(state, command)
    if validation_error is not None:
        return validation_error
    transaction = state.transactions.get(command.transactional_id)
    if transaction is None:
        return _new_transaction(state, command)
    expected, current = (command.producer_id, command.producer_epoch), (transaction.producer_id, transaction.epoch)
    if expected not in (_NOBODY, current):
        if expected == transaction.previous:
            return ProducerAllocated(*current)  # asked for once more, by the producer that has the epoch
        return Rejected(Rejection.PRODUCER_FENCED)
    if expected == _NOBODY and is_late(transaction, command.seen_sequence):
        return stale()
    _fence(state, transaction, changes)
    transaction.state = EMPTY
    transaction.previous = expected
    transaction.timeout_ms = command.timeout_ms
    return ProducerAllocated(transaction.producer_id, transaction.epoch)


def add_partitions(state: State, command: AddPartitionsToTxn, changes: Changes) -> PerItem | Rejected:
    """The partitions are in the transaction; all of them or none."""
    transaction = find_transaction(state, command)
    if isinstance(transaction, Rejected):
        return transaction
    keys = dict.fromkeys((each.topic_id, each.partition) for each in command.partitions)
    rejections = [
        Rejection.UNKNOWN_TOPIC if find_partition(state, each.topic_id, each.partition) is None else Rejection.NONE
        for each in command.partitions
    ]
    new = [key for key in keys if key not in transaction.partitions]
    if any(rejections) or not new:
        return PerItem(rejections)
    if is_late(transaction, command.seen_sequence):
        return stale()
    rejection = room_rejection(state, transaction, len(new))
    if rejection:
        return Rejected(rejection, f"no room for {len(new)} more partitions in transactions")
    for key in new:
        add_partition(state, transaction, key, -1)
    return PerItem(rejections)


def add_offsets(state: State, command: AddOffsetsToTxn, changes: Changes) -> Done | Rejected:
    """The group is in the transaction."""
    transaction = find_transaction(state, command)
    if isinstance(transaction, Rejected):
        return transaction
    if len(command.group_id) > GROUP_ID_LENGTH_MAX:
        return Rejected(Rejection.INVALID_GROUP)
    if command.group_id in state.share_groups:
        return Rejected(Rejection.UNKNOWN_GROUP)
    if command.group_id in transaction.offsets:
        return Done()
    if is_late(transaction, command.seen_sequence):
        return stale()
    return add_group(state, transaction, command.group_id) or Done()


def end_transaction(state: State, command: EndTxn, changes: Changes) -> TransactionEnded | Rejected:
    """Committed or aborted, everywhere at once."""
    transaction = state.transactions.get(command.transactional_id)
    if transaction is None:
        return Rejected(Rejection.INVALID_PRODUCER_MAPPING)
    told = (command.producer_id, command.producer_epoch)
    is_ongoing = transaction.state == ONGOING
    current = (transaction.producer_id, transaction.epoch)
    is_past = told != current and command.bumps  # in the old protocol an epoch does not end with its transaction
    if transaction.ended == (*told, command.committed) and (is_past or (told == current and not is_ongoing)):
        return TransactionEnded(transaction.producer_id, transaction.epoch)
    if transaction.ended == (*told, not command.committed) and is_past and not is_ongoing:
        return Rejected(Rejection.INVALID_TXN_STATE, "the transaction has ended otherwise")
    found = find_transaction(state, command)
    if isinstance(found, Rejected):
        return found
    # Nobody means to end what he does not know of: it may be a second copy, answered already.
    if is_late(transaction, command.seen_sequence) or 0 <= command.seen_sequence < transaction.started_sequence:
        return stale()
    if not is_ongoing and (command.committed or not command.bumps):
        return Rejected(Rejection.INVALID_TXN_STATE)
    # KIP-890: who does not know whether anything was added aborts, and goes on with another epoch either way.
    _end(state, transaction, committed=command.committed, bumps=command.bumps, changes=changes)
    transaction.ended = (*told, command.committed)
    if command.bumps:
        transaction.previous = told
    return TransactionEnded(transaction.producer_id, transaction.epoch)


def find_transaction(state: State, command: TransactionCommand) -> Transaction | Rejected:
    """The transaction of the command's producer, if that is still the one that may write."""
    transaction = state.transactions.get(command.transactional_id)
    if transaction is None or transaction.producer_id != command.producer_id:
        return Rejected(Rejection.INVALID_PRODUCER_MAPPING)
    return transaction if transaction.epoch == command.producer_epoch else Rejected(Rejection.PRODUCER_FENCED)


def is_late(transaction: Transaction, seen_sequence: int) -> bool:
    """Whether its sender did not know that the transaction before was ended, or another producer came."""
    return 0 <= seen_sequence < transaction.changed_sequence


def stale() -> Rejected:
    """What is answered to those who are late."""
    return Rejected(Rejection.STALE, "the transaction before this one was ended since")


def room_rejection(state: State, transaction: Transaction, partitions: int) -> Rejection:
    """Why so many more partitions do not fit: into the transaction, which is final, or into all for the moment."""
    if len(transaction.partitions) + partitions > PARTITIONS_PER_TRANSACTION_MAX:
        return Rejection.POLICY_VIOLATION
    is_full = state.transaction_partition_count + partitions > TRANSACTION_PARTITIONS_MAX
    return Rejection.OVERLOADED if is_full or state.aborted_count >= ABORTED_TRANSACTIONS_MAX else Rejection.NONE


def add_partition(state: State, transaction: Transaction, key: PartitionKey, first_offset: int) -> None:
    """The partition is in the transaction, which begins if it was not ongoing; -1 until there are records in it."""
    _begin(state, transaction)
    state.transaction_partition_count += key not in transaction.partitions
    transaction.partitions[key] = first_offset


def add_group(state: State, transaction: Transaction, group_id: str) -> Rejected | None:
    """The group is in the transaction, which begins if it was not ongoing; why not, if there is no room."""
    is_large = len(transaction.offsets) >= OFFSETS_PER_TRANSACTION_MAX
    rejection = Rejection.POLICY_VIOLATION if is_large else room_rejection(state, transaction, 0)
    if rejection:
        return Rejected(rejection, "no room for another group in the transaction")
    _begin(state, transaction)
    transaction.offsets[group_id] = {}
    state.transactions_by_group.setdefault(group_id, {})[transaction.transactional_id] = None
    return None


def end_overdue(state: State, changes: Changes) -> None:
    """Abort transactions that have taken too long, and fence their producers; bounded work for each tick.

    Nobody has taken such a producer's place, so it may go on with the next epoch (KIP-588): by beginning anew, or, in
    the new protocol, by aborting what is aborted.
    """
    partitions = 0
    for transaction in overdue(state):
        partitions += 1 + len(transaction.partitions)
        fenced = (transaction.producer_id, transaction.epoch)
        _fence(state, transaction, changes)
        transaction.previous, transaction.ended = fenced, (*fenced, False)
        if partitions >= TRANSACTION_PARTITIONS_ENDED_PER_TICK:
            return


def remove_transactions(state: State) -> None:
    """Forget transactional ids that nobody has used for long; they stand in the order of their last use."""
    old: list[Transaction] = []
    for transaction in state.transactions.values():
        is_used = transaction.state == ONGOING or transaction.active_ms + TRANSACTIONAL_ID_EXPIRY_MS > state.clock_ms
        if is_used or len(old) >= TRANSACTIONS_REMOVED_PER_TICK:
            break
        old.append(transaction)
    for transaction in old:
        del state.transactions[transaction.transactional_id]
        del state.transactions_by_producer[transaction.producer_id]


def _init_validation_error(state: State, command: InitTransactionalProducer) -> Rejected | None:
    if not 0 < len(command.transactional_id) <= TRANSACTIONAL_ID_LENGTH_MAX:
        length = len(command.transactional_id)
        return Rejected(Rejection.INVALID_REQUEST, f"a transactional id of {length} letters")
    if not 0 < command.timeout_ms <= TRANSACTION_TIMEOUT_MAX_MS:
        return Rejected(Rejection.INVALID_TRANSACTION_TIMEOUT, f"a time-out of {command.timeout_ms} ms")
    if (command.producer_id == NO_PRODUCER) != (command.producer_epoch == NO_EPOCH):
        return Rejected(Rejection.INVALID_REQUEST, "a producer id and an epoch come together")
    return None


def _new_transaction(state: State, command: InitTransactionalProducer) -> ProducerAllocated | Rejected:
    if len(state.transactions) >= TRANSACTIONS_MAX:
        return Rejected(Rejection.OVERLOADED, f"{TRANSACTIONS_MAX} transactional ids are known, no more can be")
    producer_id = new_producer_id(state)
    transaction = Transaction(
        command.transactional_id, producer_id, 0, command.timeout_ms, state.clock_ms, state.sequence
    )
    state.transactions[command.transactional_id] = transaction
    state.transactions_by_producer[producer_id] = transaction
    return ProducerAllocated(producer_id, 0)


def _begin(state: State, transaction: Transaction) -> None:
    if transaction.state != ONGOING:
        transaction.state = ONGOING
        transaction.started_ms = state.clock_ms
        transaction.started_sequence = state.sequence
        state.ongoing[transaction.transactional_id] = transaction
        record_deadline(state, transaction)


def _fence(state: State, transaction: Transaction, changes: Changes) -> None:
    """Whoever writes under the id may no longer, and what it has not committed is aborted."""
    if transaction.state == ONGOING:
        _end(state, transaction, committed=False, bumps=True, changes=changes)
    else:
        _bump(state, transaction)
        _touch(state, transaction)
    transaction.ended = None
    transaction.previous = _NOBODY


def _end(state: State, transaction: Transaction, *, committed: bool, bumps: bool, changes: Changes) -> None:
    epoch = transaction.epoch + bumps  # as Kafka writes them, markers already have the next epoch
    for (topic_id, number), first_offset in transaction.partitions.items():
        # In a topic that can come back, the transaction must have ended when it does.
        partition = find_kept_partition(state, topic_id, number) if first_offset >= 0 else None
        if partition is not None:
            write_marker(state, partition, transaction.producer_id, epoch, committed=committed, changes=changes)
    (commit_pending if committed else release_pending)(state, transaction)
    state.transaction_partition_count -= len(transaction.partitions)
    transaction.partitions = {}
    transaction.offsets = {}
    transaction.offset_count = 0
    transaction.state = COMMITTED if committed else ABORTED
    transaction.started_ms = -1
    state.ongoing.pop(transaction.transactional_id, None)
    if bumps:
        _bump(state, transaction)
    _touch(state, transaction)


def _bump(state: State, transaction: Transaction) -> None:
    """The next epoch; after the last one another producer id. The very last is left for markers."""
    if transaction.epoch + 1 < PRODUCER_EPOCH_MAX:
        transaction.epoch += 1
        return
    del state.transactions_by_producer[transaction.producer_id]
    transaction.producer_id, transaction.epoch = new_producer_id(state), 0
    state.transactions_by_producer[transaction.producer_id] = transaction


def _touch(state: State, transaction: Transaction) -> None:
    transaction.active_ms = state.clock_ms
    transaction.changed_sequence = state.sequence
    del state.transactions[transaction.transactional_id]
    state.transactions[transaction.transactional_id] = transaction
