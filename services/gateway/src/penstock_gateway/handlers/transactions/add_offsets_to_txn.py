"""AddOffsetsToTxn: adds a group to a transaction, which then may commit offsets of it (KIP-98)."""

from typing import Protocol

from penstock.contracts.commands import AddOffsetsToTxn, Rejected
from penstock.kafkawire.api.add_offsets_to_txn import API as API, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.transaction_commands import fenced_error, transaction_command, transaction_error
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTransactionCommands

FIRST_VERSION_FENCED = 2


class Needs(HasClock, HasSequencer, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    command = AddOffsetsToTxn(
        now_ms=gateway.clock.now_ms(),
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
        seen_sequence=client.seen_sequence,
    )
    outcome = await transaction_command(gateway, client, command)
    if isinstance(outcome, ErrorCode):
        return AddOffsetsToTxnResponse(error_code=outcome)
    if isinstance(outcome, Rejected):
        error = transaction_error(outcome.rejection, fenced=fenced_error(version, FIRST_VERSION_FENCED))
        return AddOffsetsToTxnResponse(error_code=error)
    return AddOffsetsToTxnResponse()
