"""InitProducerId: a producer id of its own for every idempotent producer that asks (KIP-98)."""

from gateway.context import Client, Gateway
from gateway.errors import PRODUCERS_UNAVAILABLE, TRANSACTIONS_REFUSED, error_of
from penstock.contracts.commands import AllocateProducer, ProducerAllocated, Refused
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.kafkawire.error_codes import ErrorCode

COMMAND_DEADLINE_S = 10.0


async def handle(
    gateway: Gateway, client: Client, version: int, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        error = TRANSACTIONS_REFUSED if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    # A producer that lost its sequence asks with its old id (KIP-360); a new one serves it as well, with a fresh start.
    try:
        command = AllocateProducer(gateway.clock.now_ms())
        (outcome,) = await gateway.sequencer.command([command], deadline_s=COMMAND_DEADLINE_S)
    except Unavailable:
        return InitProducerIdResponse(error_code=PRODUCERS_UNAVAILABLE, producer_epoch=-1)
    if isinstance(outcome, Refused):
        return InitProducerIdResponse(error_code=error_of(outcome.refusal), producer_epoch=-1)
    assert isinstance(outcome, ProducerAllocated), f"an unexpected answer to an allocation: {outcome}"
    return InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
