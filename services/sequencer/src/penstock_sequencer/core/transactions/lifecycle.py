"""States of a transaction: it begins, gets partitions and groups, and ends (ADR 0012).

    Empty -- the first partition or group is added ----> Ongoing
    Ongoing -- EndTxn ---------------------------------> CompleteCommit or CompleteAbort
    Ongoing -- its timeout ends -----------------------> CompleteAbort; the producer may continue with the next epoch
    any -- a producer starts --------------------------> Empty; an ongoing one is aborted, the former producer is fenced
    CompleteCommit, CompleteAbort -- as from Empty ----> Ongoing

There is no state between Ongoing and its end: the entry that ends a transaction writes all its markers.

An epoch is a producer's right to write. A producer with an older epoch than the transaction's is fenced in all
partitions at once. Each of its batches is checked against the transaction, not only against the partition.

The deadlines of ongoing transactions are a heap. A row of it is stale when its transaction has ended.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from penstock.contracts.batches import NO_PRODUCER
from penstock.contracts.commands import NO_EPOCH, Rejected
from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.pending_offsets import commit_pending, release_pending
from penstock_sequencer.core.log.control_markers import write_marker
from penstock_sequencer.core.log.partitions import find_kept_partition
from penstock_sequencer.core.log.producers import new_producer_id
from penstock_sequencer.core.state.cluster import (
    ABORTED,
    COMMITTED,
    ONGOING,
    Changes,
    PartitionKey,
    State,
    Transaction,
)
from penstock_sequencer.core.state.limits import PRODUCER_EPOCH_MAX
from penstock_sequencer.core.state.producer_clock import producer_ms
from penstock_sequencer.core.state.shares import count_transactional_id, is_large, pressure_min

NO_PRODUCER_AND_EPOCH = (NO_PRODUCER, NO_EPOCH)
_STALE_MAX = 64  # the heap is rebuilt when it has this many rows more than twice the ongoing transactions


def room_rejection(state: State, transaction: Transaction, partitions: int) -> Rejection:
    """Why more partitions do not fit: final for this transaction, or temporary for all transactions."""
    limits = state.limits.transactions
    if len(transaction.partitions) + partitions > limits.partitions_per_transaction_max:
        return Rejection.POLICY_VIOLATION
    is_full = state.transaction_partition_count + partitions > limits.transaction_partitions_max
    is_full = is_full or state.aborted_count >= limits.aborted_transactions_max
    return Rejection.OVERLOADED if is_full else Rejection.NONE


def add_partition(state: State, transaction: Transaction, key: PartitionKey, first_offset: int) -> None:
    """Add a partition and begin the transaction if needed; `first_offset` is -1 until the partition has records."""
    _begin(state, transaction)
    state.transaction_partition_count += key not in transaction.partitions
    transaction.partitions[key] = first_offset


def add_group(state: State, transaction: Transaction, group_id: str) -> Rejected | None:
    """Add a group and begin the transaction if needed; a rejection if the limits do not allow it."""
    is_large = len(transaction.offsets) >= state.limits.transactions.offsets_per_transaction_max
    rejection = Rejection.POLICY_VIOLATION if is_large else room_rejection(state, transaction, 0)
    if rejection:
        return Rejected(rejection, "no room for another group in the transaction")
    _begin(state, transaction)
    transaction.offsets[group_id] = {}
    state.transactions_by_group.setdefault(group_id, {})[transaction.transactional_id] = None
    return None


def _begin(state: State, transaction: Transaction) -> None:
    if transaction.state != ONGOING:
        transaction.state = ONGOING
        transaction.started_ms = state.clock_ms
        transaction.started_sequence = state.sequence
        state.ongoing[transaction.transactional_id] = transaction
        _record_deadline(state, transaction)


def fence(state: State, transaction: Transaction, changes: Changes) -> None:
    """End the former producer's right to write, and abort its ongoing transaction."""
    if transaction.state == ONGOING:
        end(state, transaction, committed=False, bumps=True, changes=changes)
    else:
        _bump(state, transaction)
        _touch(state, transaction)
    transaction.ended = None
    transaction.previous = NO_PRODUCER_AND_EPOCH


def end(state: State, transaction: Transaction, *, committed: bool, bumps: bool, changes: Changes) -> None:
    """Write a marker into each partition, commit or drop the offsets, and start the next epoch if it `bumps`."""
    epoch = transaction.epoch + bumps  # markers have the next epoch already, as Kafka writes them
    for (topic_id, number), first_offset in transaction.partitions.items():
        # The transaction must end in recoverable topics too, in case they are undeleted.
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
    """Start the next epoch, or use another producer id after the last epoch. The very last is left for markers."""
    if transaction.epoch + 1 < PRODUCER_EPOCH_MAX:
        transaction.epoch += 1
        return
    del state.transactions_by_producer[transaction.producer_id]
    transaction.producer_id, transaction.epoch = new_producer_id(state), 0
    state.transactions_by_producer[transaction.producer_id] = transaction


def _touch(state: State, transaction: Transaction) -> None:
    transaction.active_ms = producer_ms(state)
    transaction.changed_sequence = state.sequence
    del state.transactions[transaction.transactional_id]
    state.transactions[transaction.transactional_id] = transaction


def end_overdue(state: State, changes: Changes) -> None:
    """Abort transactions whose timeout has ended, and fence their producers; bounded work for each tick.

    No other producer has replaced such a producer, so it may continue with the next epoch (KIP-588). It starts again,
    or, in the new protocol, aborts the aborted transaction.
    """
    partitions = 0
    for transaction in _overdue(state):
        partitions += 1 + len(transaction.partitions)
        fenced = (transaction.producer_id, transaction.epoch)
        fence(state, transaction, changes)
        transaction.previous, transaction.ended = fenced, (*fenced, False)
        if partitions >= state.limits.transactions.transaction_partitions_ended_per_tick:
            return


def remove_transactions(state: State) -> None:
    """Remove transactional ids that were not used for long; the table is in the order of their last use."""
    old: list[Transaction] = []
    limits = state.limits.transactions
    before_ms = producer_ms(state) - limits.transactional_id_expiry_ms
    for transaction in state.transactions.values():
        is_used = transaction.state == ONGOING or transaction.active_ms > before_ms
        if is_used or len(old) >= limits.transactions_removed_per_tick:
            break
        old.append(transaction)
    for transaction in old:
        _remove(state, transaction)
    known = len(state.transactions)
    least = pressure_min(state, limits.transactions_max, limits.transactions_pressure_min)
    if state.level >= PRODUCERS_LEVEL and known >= least:
        rows = state.principals
        count_max = limits.transactions_removed_per_tick
        evict_transactions(state, count_max, lambda each: is_large(state, rows[each].transactional_ids, known))


def evict_transactions(state: State, count_max: int, is_chosen: Callable[[int], bool]) -> int:
    """Remove the idlest transactional ids of the chosen principals, because there are too many; return how many.

    A producer that returns begins again with another producer id. An ongoing transaction stays, and so does an id that
    was used a short time ago.
    """
    limits = state.limits.transactions
    before_ms = producer_ms(state) - limits.transactional_id_idle_min_ms
    idle: list[Transaction] = []
    for transaction in islice(state.transactions.values(), limits.transactions_walked_max):
        if transaction.active_ms > before_ms or len(idle) >= count_max:
            break
        if transaction.state != ONGOING and is_chosen(transaction.owner):
            idle.append(transaction)
    for transaction in idle:
        _remove(state, transaction)
    return len(idle)


def _remove(state: State, transaction: Transaction) -> None:
    del state.transactions[transaction.transactional_id]
    del state.transactions_by_producer[transaction.producer_id]
    count_transactional_id(state, transaction.owner, -1)


def _record_deadline(state: State, transaction: Transaction) -> None:
    """Add the deadline of a transaction that has begun."""
    heappush(state.transaction_alarms, _alarm(transaction))
    if len(state.transaction_alarms) > 2 * len(state.ongoing) + _STALE_MAX:
        enter_deadlines(state)


def enter_deadlines(state: State) -> None:
    """Rebuild the heap from the ongoing transactions."""
    state.transaction_alarms = [_alarm(each) for each in state.ongoing.values()]
    heapify(state.transaction_alarms)


def _overdue(state: State) -> Iterator[Transaction]:
    """Transactions whose timeout has ended, in the order of their deadlines.

    The caller ends each of them.
    """
    alarms = state.transaction_alarms
    while alarms and alarms[0][0] <= state.clock_ms:
        alarm = heappop(alarms)
        transaction = state.ongoing.get(alarm[1])
        if transaction is not None and _alarm(transaction) == alarm:
            yield transaction


def _alarm(transaction: Transaction) -> tuple[int, str]:
    return transaction.started_ms + transaction.timeout_ms, transaction.transactional_id
