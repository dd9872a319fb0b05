"""DescribeTransactions: describes transactions by transactional id, with the partitions of ongoing ones (KIP-664)."""

from collections.abc import Sequence

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.transactions import DescribeTransactionsQuery, DescribeTransactionsView, TransactionView
from penstock.kafkawire.api.describe_transactions import (
    API as API,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.transaction_commands import TRANSACTIONS_UNAVAILABLE
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasSequencer

DEAD = "Dead"


async def handle(
    gateway: HasSequencer, client: Client, version: int, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    # Each once: the partitions of a transaction may be a thousand times as large as its id.
    wanted = list(dict.fromkeys(request.transactional_ids))
    found: list[TransactionState] = []
    try:
        while len(found) < len(wanted):
            found += map(_state, await _ask(gateway, wanted[len(found) :]))
    except Unavailable:
        found += [_failed(each, TRANSACTIONS_UNAVAILABLE) for each in wanted[len(found) :]]
    return DescribeTransactionsResponse(transaction_states=found)


async def _ask(gateway: HasSequencer, transactional_ids: list[str]) -> Sequence[TransactionView]:
    """The first transactions, as many as fit into an answer."""
    query = DescribeTransactionsQuery(0, transactional_ids, fresh=True)
    view = await gateway.sequencer.query("describe_transactions", query, DescribeTransactionsView)
    assert view.transactions, "an answer has at least one transaction"
    return view.transactions


def _state(view: TransactionView) -> TransactionState:
    if view.state == DEAD:
        is_named = bool(view.transactional_id)
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_named else ErrorCode.INVALID_REQUEST
        return _failed(view.transactional_id, error)
    return TransactionState(
        transactional_id=view.transactional_id,
        transaction_state=view.state,
        transaction_timeout_ms=view.timeout_ms,
        transaction_start_time_ms=view.started_ms,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        topics=[TopicData(topic.topic, topic.partitions) for topic in view.topics],
    )


def _failed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error, transactional_id=transactional_id)
