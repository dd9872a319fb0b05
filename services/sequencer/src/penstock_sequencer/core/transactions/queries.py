"""Queries of transactions: their list, their contents, and the producers of partitions."""

from collections.abc import Iterable
from heapq import nsmallest

from penstock.contracts.queries.transactions import (
    DescribeTransactionsQuery,
    DescribeTransactionsView,
    PartitionProducers,
    ProducersQuery,
    ProducersView,
    ProducerView,
    TransactionsQuery,
    TransactionSummary,
    TransactionsView,
    TransactionTopic,
    TransactionView,
)
from penstock.contracts.regex.regex_subscriptions import BadPattern, Pattern
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.partitions import find_partition
from penstock_sequencer.core.state.cluster import DEAD, ONGOING, Partition, State, Transaction
from penstock_sequencer.core.state.limits import AnswerLimits
from penstock_sequencer.core.state.producer_clock import producer_ms

_NONE = -1


def describe_transactions(state: State, query: DescribeTransactionsQuery) -> DescribeTransactionsView:
    """Each transactional id with the partitions of its ongoing transaction, as many as an answer holds."""
    found: list[TransactionView] = []
    listed = 0
    for transactional_id in query.transactional_ids:
        if listed >= state.limits.answers.transaction_partitions_listed_max:
            break
        found.append(_view(state, transactional_id))
        listed += 1 + sum(len(topic.partitions) for topic in found[-1].topics)
    return DescribeTransactionsView(state.sequence, found)


def _view(state: State, transactional_id: str) -> TransactionView:
    transaction = state.transactions.get(transactional_id)
    if transaction is None:
        return TransactionView(transactional_id, DEAD)
    numbers: dict[str, list[int]] = {}
    for topic_id, number in transaction.partitions:
        topic = state.topics_by_id.get(topic_id)
        if topic is not None:
            numbers.setdefault(topic.name, []).append(number)
    return TransactionView(
        transactional_id,
        transaction.state,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.started_ms,
        [TransactionTopic(name, sorted(found)) for name, found in numbers.items()],
    )


def transactions(state: State, query: TransactionsQuery) -> TransactionsView:
    """Transactional ids that pass the filters, in ascending order, after the one in the query."""
    try:
        pattern = Pattern(query.pattern) if query.pattern else None
    except BadPattern:
        return TransactionsView(state.sequence, [], rejection=Rejection.INVALID_PATTERN)
    passing = (each for each in _candidates(state, query) if _passes(state, each, query))
    limits = state.limits.answers
    found = nsmallest(limits.transactions_listed_max + 1, passing, key=lambda each: each.transactional_id)
    seen = found[: limits.transactions_listed_max if pattern is None else _count_within_limit(found, limits)]
    listed = [
        TransactionSummary(each.transactional_id, each.producer_id, each.state)
        for each in seen
        if pattern is None or pattern.matches(_plain(each.transactional_id))
    ]
    after = "" if pattern is None or not seen else seen[-1].transactional_id
    return TransactionsView(state.sequence, listed, is_more=len(found) > len(seen), after=after)


def _count_within_limit(found: list[Transaction], limits: AnswerLimits) -> int:
    """How many of them, at least one, are matched with a pattern in one query."""
    letters = 0
    for count, each in enumerate(found[: limits.transactions_listed_max]):
        letters += len(each.transactional_id)
        if count and letters > limits.pattern_letters_max:
            return count
    return limits.transactions_listed_max


def _plain(transactional_id: str) -> str:
    """The id with one letter for every non-ASCII letter: in patterns, only `.` and negated classes match those."""
    if transactional_id.isascii():
        return transactional_id
    return "".join(letter if letter.isascii() else "\x7f" for letter in transactional_id)


def _candidates(state: State, query: TransactionsQuery) -> Iterable[Transaction]:
    """All transactions, or only those of the producers in the query."""
    if not query.producer_ids:
        return state.transactions.values()
    found = (state.transactions_by_producer.get(producer_id) for producer_id in dict.fromkeys(query.producer_ids))
    return [each for each in found if each is not None]


def _passes(state: State, transaction: Transaction, query: TransactionsQuery) -> bool:
    if transaction.transactional_id <= query.after:
        return False
    if query.states and transaction.state not in query.states:
        return False
    if query.duration_ms < 0:
        return True
    return transaction.state == ONGOING and state.clock_ms - transaction.started_ms > query.duration_ms


def producers(state: State, query: ProducersQuery) -> ProducersView:
    """The idempotent producers of each partition, for as many partitions as an answer holds."""
    found: list[PartitionProducers] = []
    listed = 0
    for topic_id, number in query.partitions:
        if listed >= state.limits.answers.producers_listed_max:
            break
        found.append(_producers(state, find_partition(state, topic_id, number)))
        listed += 1 + len(found[-1].producers)
    return ProducersView(state.sequence, found)


def _producers(state: State, partition: Partition | None) -> PartitionProducers:
    if partition is None:
        return PartitionProducers(Rejection.UNKNOWN_TOPIC)
    opened = {} if partition.transactions is None else partition.transactions.open
    lag_ms = state.clock_ms - producer_ms(state)
    views = [
        ProducerView(
            producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.active_ms + lag_ms,
            state.leader_epoch if producer_id in state.transactions_by_producer else _NONE,
            opened.get(producer_id, _NONE),
        )
        for producer_id, producer in partition.producers.items()
    ]
    return PartitionProducers(Rejection.NONE, views)
