"""What the transaction APIs share: commands to the sequencers, and Kafka's words for what comes back."""

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
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import TRANSACTIONS_REJECTED, error_of
from penstock_gateway.kafka.feature_levels import HasLevel, may_rise
from penstock_gateway.kafka.parts import HasTransactionCommands

TransactionCommand = InitTransactionalProducer | AddPartitionsToTxn | AddOffsetsToTxn | CommitTxnOffsets | EndTxn

# While the sequencers cannot be reached; every client looks for the coordinator again, and asks once more.
TRANSACTIONS_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Needs(HasLevel, HasTransactionCommands, Protocol):
    """What this module uses of the gateway."""


def transactions_error(gateway: HasLevel) -> ErrorCode:
    """Why there are no transactions here: some sequencer does not know them yet. `NONE` if there are."""
    level = gateway.sequencer.seen_level
    if level is not None and level >= TRANSACTIONS_LEVEL:
        return ErrorCode.NONE
    return TRANSACTIONS_UNAVAILABLE if level is None or may_rise(gateway) else TRANSACTIONS_REJECTED


async def transaction_command(gateway: Needs, command: TransactionCommand) -> Outcome | ErrorCode:
    """The outcome of a transaction's command, or the error if it could not be had."""
    error = transactions_error(gateway)
    if error:
        return error
    if not command.transactional_id:
        return ErrorCode.INVALID_REQUEST
    try:
        return await gateway.transaction_commands.outcome(command)
    except Unavailable:
        return TRANSACTIONS_UNAVAILABLE
    except Invalid as invalid:
        return Rejected(Rejection.INVALID_REQUEST, str(invalid))


def transaction_error(rejection: int, *, fenced: ErrorCode = ErrorCode.PRODUCER_FENCED) -> ErrorCode:
    """Kafka's code for what a sequencer refused; who was fenced is told so in the word that his version knows."""
    if rejection == Rejection.PRODUCER_FENCED:
        return fenced
    if rejection == Rejection.OVERLOADED:  # surely not done, and worth another try
        return TRANSACTIONS_UNAVAILABLE
    return error_of(rejection)


def fenced_error(version: int, first_version_fenced: int) -> ErrorCode:
    """The word for a fenced producer in this version: older clients do not know PRODUCER_FENCED (KIP-360, KIP-588)."""
    return ErrorCode.PRODUCER_FENCED if version >= first_version_fenced else ErrorCode.INVALID_PRODUCER_EPOCH
