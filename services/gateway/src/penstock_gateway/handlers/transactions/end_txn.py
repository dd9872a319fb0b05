"""EndTxn: commits or aborts a transaction, in all its partitions and groups at once (KIP-98, KIP-890)."""

from typing import Protocol

from penstock.contracts.commands import EndTxn, Rejected, TransactionEnded
from penstock.kafkawire.api.end_txn import API as API, EndTxnRequest, EndTxnResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.transaction_commands import fenced_error, transaction_command, transaction_error
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTransactionCommands

FIRST_VERSION_FENCED = 2
FIRST_VERSION_BUMPS = 5  # from this version on, each transaction has its own epoch


class Needs(HasClock, HasSequencer, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: EndTxnRequest) -> EndTxnResponse:
    command = EndTxn(
        now_ms=gateway.clock.now_ms(),
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
        bumps=version >= FIRST_VERSION_BUMPS,
        seen_sequence=client.seen_sequence,
    )
    outcome = await transaction_command(gateway, client, command)
    if isinstance(outcome, ErrorCode):
        return EndTxnResponse(error_code=outcome)
    if isinstance(outcome, Rejected):
        fenced = fenced_error(version, FIRST_VERSION_FENCED)
        return EndTxnResponse(error_code=transaction_error(outcome.rejection, fenced=fenced))
    assert isinstance(outcome, TransactionEnded), f"unexpected outcome of a transaction's end: {outcome}"
    return EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
