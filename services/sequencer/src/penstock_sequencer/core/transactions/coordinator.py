"""Commands of transactional producers, answered as Kafka's TransactionCoordinator answers them (ADR 0012)."""

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
from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.offset_commit import (
    member_rejection,
    offset_rejection,
    preview_offsets,
    record_life,
)
from penstock_sequencer.core.groups.pending_offsets import add_pending, make_group
from penstock_sequencer.core.log.partitions import find_partition
from penstock_sequencer.core.log.producers import new_producer_id
from penstock_sequencer.core.state.cluster import EMPTY, ONGOING, Changes, PartitionKey, State, Transaction
from penstock_sequencer.core.state.producer_clock import producer_ms
from penstock_sequencer.core.state.shares import count_transactional_id, enter, fits, number_of, row_of
from penstock_sequencer.core.transactions.lifecycle import (
    NO_PRODUCER_AND_EPOCH,
    add_group,
    add_partition,
    end,
    evict_transactions,
    fence,
    room_rejection,
)

TransactionCommand = AddPartitionsToTxn | AddOffsetsToTxn | CommitTxnOffsets | EndTxn


def init_producer(state: State, command: InitTransactionalProducer, changes: Changes) -> ProducerAllocated | Rejected:
    """Give the producer a unique id and epoch; abort an ongoing transaction of the transactional id."""
    validation_error = _init_validation_error(state, command)
    if validation_error is not None:
        return validation_error
    transaction = state.transactions.get(command.transactional_id)
    if transaction is None:
        return _new_transaction(state, command)
    expected, current = (command.producer_id, command.producer_epoch), (transaction.producer_id, transaction.epoch)
    if expected not in (NO_PRODUCER_AND_EPOCH, current):
        if expected == transaction.previous:
            return ProducerAllocated(*current)  # a repeated request of the producer that has the epoch
        return Rejected(Rejection.PRODUCER_FENCED)
    if expected == NO_PRODUCER_AND_EPOCH and is_late(transaction, command.seen_sequence):
        return stale()
    fence(state, transaction, changes)
    transaction.state = EMPTY
    transaction.previous = expected
    transaction.timeout_ms = command.timeout_ms
    return ProducerAllocated(transaction.producer_id, transaction.epoch)


def add_partitions(state: State, command: AddPartitionsToTxn, changes: Changes) -> PerItem | Rejected:
    """Add all partitions to the transaction, or none."""
    answer = preview_partitions(state, command)
    if answer is not None:
        return answer
    transaction = state.transactions[command.transactional_id]
    for key in _new_partitions(transaction, command):
        add_partition(state, transaction, key, -1)
    return PerItem([Rejection.NONE] * len(command.partitions))


def preview_partitions(state: State, command: AddPartitionsToTxn) -> PerItem | Rejected | None:
    """The outcome of `add_partitions` if it would add none; None if it would add some."""
    transaction = find_transaction(state, command)
    if isinstance(transaction, Rejected):
        return transaction
    rejections = [
        Rejection.UNKNOWN_TOPIC if find_partition(state, each.topic_id, each.partition) is None else Rejection.NONE
        for each in command.partitions
    ]
    new = _new_partitions(transaction, command)
    if any(rejections) or not new:
        return PerItem(rejections)
    if is_late(transaction, command.seen_sequence):
        return stale()
    rejection = room_rejection(state, transaction, len(new))
    return Rejected(rejection, f"no room for {len(new)} more partitions in transactions") if rejection else None


def _new_partitions(transaction: Transaction, command: AddPartitionsToTxn) -> list[PartitionKey]:
    keys = dict.fromkeys((each.topic_id, each.partition) for each in command.partitions)
    return [key for key in keys if key not in transaction.partitions]


def add_offsets(state: State, command: AddOffsetsToTxn, changes: Changes) -> Done | Rejected:
    """Add the group to the transaction."""
    transaction = find_transaction(state, command)
    if isinstance(transaction, Rejected):
        return transaction
    if len(command.group_id) > state.limits.groups.group_id_length_max:
        return Rejected(Rejection.INVALID_GROUP)
    if command.group_id in state.share_groups:
        return Rejected(Rejection.UNKNOWN_GROUP)
    if command.group_id in transaction.offsets:
        return Done()
    if is_late(transaction, command.seen_sequence):
        return stale()
    return add_group(state, transaction, command.group_id) or Done()


def commit_txn_offsets(state: State, command: CommitTxnOffsets, changes: Changes) -> PerItem | Rejected:
    """Keep offsets until the transaction ends; one rejection for each that cannot be kept."""
    rejected = _rejected_offsets(state, command)
    if rejected is not None:
        return rejected
    transaction = state.transactions[command.transactional_id]
    if not make_group(state, transaction, command.group_id):
        return Rejected(Rejection.OVERLOADED, "no room for another group")
    if command.group_id not in transaction.offsets:
        validation_error = add_group(state, transaction, command.group_id)
        if validation_error is not None:
            return validation_error
    group = state.groups.get(command.group_id)
    if group is not None:
        record_life(state, group, command.member_id)
    group_id, seen = command.group_id, command.seen_sequence
    return PerItem(
        [
            offset_rejection(state, item, command.topic_ids) or add_pending(state, transaction, group_id, item, seen)
            for item in command.offsets
        ]
    )


def preview_txn_offsets(state: State, command: CommitTxnOffsets) -> PerItem | Rejected | None:
    """The outcome of `commit_txn_offsets` if it would keep no offset; None if it may keep one."""
    return _rejected_offsets(state, command) or preview_offsets(state, command)


def _rejected_offsets(state: State, command: CommitTxnOffsets) -> Rejected | None:
    transaction = find_transaction(state, command)
    if isinstance(transaction, Rejected):
        return transaction
    rejection = _offsets_rejection(state, command)
    if rejection:
        return Rejected(rejection)
    if is_late(transaction, command.seen_sequence):
        return stale()
    if command.group_id not in transaction.offsets and not command.adds:
        return Rejected(Rejection.INVALID_TXN_STATE, "the group was not added to the transaction")
    return None


def _offsets_rejection(state: State, command: CommitTxnOffsets) -> Rejection:
    """As in Kafka, a sender without a membership may commit: older protocol versions cannot name a member."""
    if not 0 < len(command.group_id) <= state.limits.groups.group_id_length_max:
        return Rejection.INVALID_GROUP
    if command.group_id in state.share_groups:
        return Rejection.UNKNOWN_GROUP
    group = state.groups.get(command.group_id)
    is_anonymous = command.generation < 0 and not command.member_id and command.group_instance_id is None
    if is_anonymous:
        return Rejection.NONE
    if group is None:
        return Rejection.ILLEGAL_GENERATION if command.generation >= 0 else Rejection.NONE
    rejection = member_rejection(group, command)
    # A rebalance does not matter: the newest generation may commit, and its client does not know this error.
    return Rejection.NONE if rejection == Rejection.REBALANCE_IN_PROGRESS else rejection


def end_transaction(state: State, command: EndTxn, changes: Changes) -> TransactionEnded | Rejected:
    """Commit or abort the transaction, in all partitions at once."""
    transaction = state.transactions.get(command.transactional_id)
    if transaction is None:
        return Rejected(Rejection.INVALID_PRODUCER_MAPPING)
    named = (command.producer_id, command.producer_epoch)
    is_ongoing = transaction.state == ONGOING
    current = (transaction.producer_id, transaction.epoch)
    is_past = named != current and command.bumps  # in the old protocol an epoch does not end with its transaction
    if transaction.ended == (*named, command.committed) and (is_past or (named == current and not is_ongoing)):
        return TransactionEnded(transaction.producer_id, transaction.epoch)
    if transaction.ended == (*named, not command.committed) and is_past and not is_ongoing:
        return Rejected(Rejection.INVALID_TXN_STATE, "the transaction has ended with the opposite result")
    found = find_transaction(state, command)
    if isinstance(found, Rejected):
        return found
    # A sender that has not seen the transaction cannot mean it: this may be a second copy of an answered command.
    if is_late(transaction, command.seen_sequence) or 0 <= command.seen_sequence < transaction.started_sequence:
        return stale()
    if not is_ongoing and (command.committed or not command.bumps):
        return Rejected(Rejection.INVALID_TXN_STATE)
    # KIP-890: a producer that does not know whether anything was added aborts, and gets another epoch in both cases.
    end(state, transaction, committed=command.committed, bumps=command.bumps, changes=changes)
    transaction.ended = (*named, command.committed)
    if command.bumps:
        transaction.previous = named
    return TransactionEnded(transaction.producer_id, transaction.epoch)


def find_transaction(state: State, command: TransactionCommand) -> Transaction | Rejected:
    """The transaction of the command's producer, if that producer may still write."""
    transaction = state.transactions.get(command.transactional_id)
    if transaction is None or transaction.producer_id != command.producer_id:
        return Rejected(Rejection.INVALID_PRODUCER_MAPPING)
    return transaction if transaction.epoch == command.producer_epoch else Rejected(Rejection.PRODUCER_FENCED)


def is_late(transaction: Transaction, seen_sequence: int) -> bool:
    """Whether the sender had not seen the end of the transaction before, or the start of another producer."""
    return 0 <= seen_sequence < transaction.changed_sequence


def stale() -> Rejected:
    """The answer to a late command."""
    return Rejected(Rejection.STALE, "the transaction before this one was ended since")


def _init_validation_error(state: State, command: InitTransactionalProducer) -> Rejected | None:
    if not 0 < len(command.transactional_id) <= state.limits.transactions.transactional_id_length_max:
        length = len(command.transactional_id)
        return Rejected(Rejection.INVALID_REQUEST, f"a transactional id of {length} characters")
    if not 0 < command.timeout_ms <= state.limits.transactions.transaction_timeout_max_ms:
        return Rejected(Rejection.INVALID_TRANSACTION_TIMEOUT, f"a timeout of {command.timeout_ms} ms")
    if (command.producer_id == NO_PRODUCER) != (command.producer_epoch == NO_EPOCH):
        return Rejected(Rejection.INVALID_REQUEST, "a producer id needs an epoch, and an epoch a producer id")
    return None


def _new_transaction(state: State, command: InitTransactionalProducer) -> ProducerAllocated | Rejected:
    if not _is_room(state, number_of(state, command.principal)):
        return Rejected(Rejection.OVERLOADED, _full(state, command))
    producer_id = new_producer_id(state)
    transaction = Transaction(
        command.transactional_id, producer_id, 0, command.timeout_ms, producer_ms(state), state.sequence
    )
    transaction.owner = enter(state, command.principal)
    count_transactional_id(state, transaction.owner, 1)
    state.transactions[command.transactional_id] = transaction
    state.transactions_by_producer[producer_id] = transaction
    return ProducerAllocated(producer_id, 0)


def _is_room(state: State, owner: int) -> bool:
    """Whether the principal may have another transactional id, perhaps in the place of an idle one.

    A full table evicts the idlest id of all. A principal that has reached its share loses one of its own.
    """
    known, known_max = len(state.transactions), state.limits.transactions.transactions_max
    if fits(state, row_of(state, owner).transactional_ids, known, known_max):
        return True
    if state.level < PRODUCERS_LEVEL:
        return False
    return evict_transactions(state, 1, lambda each: known >= known_max or each == owner) > 0


def _full(state: State, command: InitTransactionalProducer) -> str:
    known, known_max = len(state.transactions), state.limits.transactions.transactions_max
    if known >= known_max:
        return f"{known_max} transactional ids are known, which is the maximum"
    owned = row_of(state, number_of(state, command.principal)).transactional_ids
    return f"the principal has {owned} of {known} transactional ids, which is its share of {known_max}"
