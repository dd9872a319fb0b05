"""ListTransactions: lists the transactional ids that this gateway coordinates (KIP-664, KIP-1152).

They are filtered by state, producer, duration and pattern. Clients ask every broker, and put the answers together.
"""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.transactions import TransactionsQuery, TransactionsView
from penstock.kafkawire.api.list_transactions import (
    API as API,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.transaction_commands import TRANSACTIONS_UNAVAILABLE
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes, HasSequencer
from penstock_gateway.metadata.cluster_view import listed_here

# Kafka's states. In Penstock a transaction is never between its end and its markers.
STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)


class Needs(HasClock, HasDirectory, HasNodes, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [state for state in request.state_filters if state not in STATES]
    try:
        found = await _all(gateway, request)
    except Unavailable:
        return ListTransactionsResponse(error_code=TRANSACTIONS_UNAVAILABLE)
    if isinstance(found, ErrorCode):
        return ListTransactionsResponse(error_code=found)
    is_listed = listed_here(gateway, client)
    listed = [each async for each in Slices().of(found) if is_listed(each.transactional_id)]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


async def _all(gateway: HasSequencer, request: ListTransactionsRequest) -> list[TransactionState] | ErrorCode:
    found: list[TransactionState] = []
    after: str | None = ""
    while after is not None:
        query = TransactionsQuery(
            0,
            request.state_filters,
            request.producer_id_filters,
            request.duration_filter,
            fresh=True,
            after=after,
            pattern=request.transactional_id_pattern or "",
        )
        view = await gateway.sequencer.query("transactions", query, TransactionsView)
        if view.rejection:
            return error_of(view.rejection)
        found += [TransactionState(each.transactional_id, each.producer_id, each.state) for each in view.transactions]
        after = (view.after or view.transactions[-1].transactional_id) if view.is_more else None
    return found
