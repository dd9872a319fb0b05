"""TxnOffsetCommit: stores offsets of a group, which are committed with the transaction (KIP-98, KIP-447)."""

from collections.abc import Iterator
from typing import Protocol

from penstock.contracts.commands import CommitTxnOffsets, Outcome, PerItem, Rejected
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.txn_offset_commit import (
    API as API,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.offset_commits import (
    METADATA_TOO_LARGE,
    answers_by_topic,
    is_oversized,
    offsets_to_commit,
)
from penstock_gateway.coordination.transaction_commands import transaction_command, transaction_error
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTransactionCommands

FIRST_VERSION_LOADING = 2  # older clients fail at COORDINATOR_LOAD_IN_PROGRESS
FIRST_VERSION_ABORTABLE = 4  # from this version on, clients know TRANSACTION_ABORTABLE (KIP-890)
FIRST_VERSION_ADDS = 5  # from this version on, AddOffsetsToTxn is not needed before


class Needs(HasClock, HasSequencer, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    slices = Slices()
    offsets = await offsets_to_commit(request.topics, slices)
    kept = [each async for each in slices.of(offsets) if not is_oversized(each)]
    command = CommitTxnOffsets(
        now_ms=gateway.clock.now_ms(),
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=kept,
        adds=version >= FIRST_VERSION_ADDS,
        seen_sequence=client.seen_sequence,
    )
    answered: Iterator[ErrorCode] = iter(())
    if kept or not offsets:
        answered = iter(_errors(version, await transaction_command(gateway, client, command), len(kept)))
    errors = [METADATA_TOO_LARGE if is_oversized(each) else next(answered) async for each in slices.of(offsets)]
    return TxnOffsetCommitResponse(
        topics=await answers_by_topic(
            request.topics, errors, slices, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
        )
    )


def _errors(version: int, outcome: Outcome | ErrorCode, count: int) -> list[ErrorCode]:
    if isinstance(outcome, ErrorCode):
        return [outcome] * count
    if isinstance(outcome, Rejected):
        return [_error(version, outcome.rejection)] * count
    assert isinstance(outcome, PerItem), f"unexpected outcome of a transaction's offsets: {outcome}"
    return [_error(version, rejection) for rejection in outcome.rejections]


def _error(version: int, rejection: int) -> ErrorCode:
    if rejection == Rejection.INVALID_TXN_STATE and version >= FIRST_VERSION_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if rejection == Rejection.STALE_MEMBER_EPOCH:  # clients of this API treat that code as fatal
        return ErrorCode.ILLEGAL_GENERATION
    error = transaction_error(rejection, fenced=ErrorCode.INVALID_PRODUCER_EPOCH)
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
