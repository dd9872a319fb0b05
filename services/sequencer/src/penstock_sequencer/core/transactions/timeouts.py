"""When ongoing transactions have taken too long: a heap, with entries that are stale once a transaction has ended."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from penstock_sequencer.core.state.cluster import State, Transaction

_STALE_MAX = 64  # beyond this, and more than there are transactions, the heap is built anew


def record_deadline(state: State, transaction: Transaction) -> None:
    """The transaction is ongoing from now on."""
    heappush(state.transaction_alarms, _alarm(transaction))
    if len(state.transaction_alarms) > 2 * len(state.ongoing) + _STALE_MAX:
        enter_deadlines(state)


def enter_deadlines(state: State) -> None:
    """The heap of just those that are ongoing."""
    state.transaction_alarms = [_alarm(each) for each in state.ongoing.values()]
    heapify(state.transaction_alarms)


def overdue(state: State) -> Iterator[Transaction]:
    """Transactions that have taken too long, the one that should have ended first before the others.

    Whoever takes one ends it.
    """
    alarms = state.transaction_alarms
    while alarms and alarms[0][0] <= state.clock_ms:
        alarm = heappop(alarms)
        transaction = state.ongoing.get(alarm[1])
        if transaction is not None and _alarm(transaction) == alarm:
            yield transaction


def _alarm(transaction: Transaction) -> tuple[int, str]:
    return transaction.started_ms + transaction.timeout_ms, transaction.transactional_id
