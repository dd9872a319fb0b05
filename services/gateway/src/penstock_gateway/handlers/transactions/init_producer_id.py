"""InitProducerId: gives an idempotent producer its producer id (KIP-98). With a transactional id, the earlier producer
of that id is fenced (KIP-360)."""

from typing import Protocol

from penstock.contracts.commands import (
    AllocateProducer,
    InitTransactionalProducer,
    Outcome,
    ProducerAllocated,
    Rejected,
)
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.init_producer_id import API as API, InitProducerIdRequest, InitProducerIdResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.transaction_commands import fenced_error, transaction_command, transaction_error
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import PRODUCERS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTransactionCommands

COMMAND_DEADLINE_S = 10.0
FIRST_VERSION_FENCED = 4


class Needs(HasClock, HasSequencer, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is None:
        return await _idempotent(gateway)
    if not request.transactional_id:
        return _failed(ErrorCode.INVALID_REQUEST)
    return await _transactional(gateway, client, version, request.transactional_id, request)


async def _idempotent(gateway: Needs) -> InitProducerIdResponse:
    # A producer that lost its sequence sends its old id (KIP-360). A new id serves as well, with a new sequence.
    try:
        command = AllocateProducer(gateway.clock.now_ms())
        (outcome,) = await gateway.sequencer.command([command], deadline_s=COMMAND_DEADLINE_S)
    except Unavailable:
        return _failed(PRODUCERS_UNAVAILABLE)
    return _failed(error_of(outcome.rejection)) if isinstance(outcome, Rejected) else _allocated(outcome)


async def _transactional(
    gateway: Needs, client: Client, version: int, transactional_id: str, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    command = InitTransactionalProducer(
        now_ms=gateway.clock.now_ms(),
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        seen_sequence=client.seen_sequence,
        principal=client.principal,
    )
    outcome = await transaction_command(gateway, client, command)
    if isinstance(outcome, ErrorCode):
        return _failed(outcome)
    if isinstance(outcome, Rejected):
        return _failed(transaction_error(outcome.rejection, fenced=fenced_error(version, FIRST_VERSION_FENCED)))
    return _allocated(outcome)


def _allocated(outcome: Outcome) -> InitProducerIdResponse:
    assert isinstance(outcome, ProducerAllocated), f"unexpected outcome of an allocation: {outcome}"
    return InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
