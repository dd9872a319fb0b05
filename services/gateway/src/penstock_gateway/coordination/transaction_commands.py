"""Sends the commands of the transaction APIs to the sequencers, and maps the outcomes to Kafka's error codes."""

from typing import Protocol

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CommitTxnOffsets,
    EndTxn,
    InitTransactionalProducer,
    Outcome,
    Rejected,
)
from penstock.contracts.commands.group_sizes import oversize
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import TRANSACTIONS_REJECTED, error_of
from penstock_gateway.kafka.feature_levels import HasLevel, may_rise
from penstock_gateway.kafka.parts import HasTransactionCommands

TransactionCommand = InitTransactionalProducer | AddPartitionsToTxn | AddOffsetsToTxn | CommitTxnOffsets | EndTxn

# The error while the sequencers cannot be reached: every client looks for the coordinator again, and retries.
TRANSACTIONS_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Needs(HasLevel, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


def transactions_error(gateway: HasLevel) -> ErrorCode:
    """The error while some sequencer does not support transactions yet, or `NONE`."""
    level = gateway.sequencer.seen_level
    if level is not None and level >= TRANSACTIONS_LEVEL:
        return ErrorCode.NONE
    return TRANSACTIONS_UNAVAILABLE if level is None or may_rise(gateway) else TRANSACTIONS_REJECTED


async def transaction_command(gateway: Needs, client: Client, command: TransactionCommand) -> Outcome | ErrorCode:
    """The outcome of a transaction's command, or the error code if there is no outcome."""
    error = transactions_error(gateway)
    if error:
        return error
    if not command.transactional_id:
        return ErrorCode.INVALID_REQUEST
    rejected = oversize(command)
    if rejected is not None:
        return rejected
    try:
        outcome, sequence = await gateway.transaction_commands.outcome(command)
    except Unavailable:
        return TRANSACTIONS_UNAVAILABLE
    except Invalid as invalid:
        return Rejected(Rejection.INVALID_REQUEST, str(invalid))
    client.record_outcome(outcome, sequence)
    return outcome


def transaction_error(rejection: int, *, fenced: ErrorCode = ErrorCode.PRODUCER_FENCED) -> ErrorCode:
    """Kafka's code for a rejection. `fenced` is the code for a fenced producer that the client's version knows."""
    if rejection == Rejection.PRODUCER_FENCED:
        return fenced
    if rejection == Rejection.OVERLOADED:  # the command had no effect, and the client can retry
        return TRANSACTIONS_UNAVAILABLE
    return error_of(rejection)


def fenced_error(version: int, first_version_fenced: int) -> ErrorCode:
    """The code for a fenced producer in this version: older clients do not know PRODUCER_FENCED (KIP-360, KIP-588)."""
    return ErrorCode.PRODUCER_FENCED if version >= first_version_fenced else ErrorCode.INVALID_PRODUCER_EPOCH
