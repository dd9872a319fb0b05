"""TxnOffsetCommit: stores offsets of a group, which are committed with the transaction (KIP-98, KIP-447)."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Protocol

from penstock.contracts.commands import CommitTxnOffsets, Outcome, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.txn_offset_commit import (
    API as API,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.offset_commits import (
    answers_by_topic,
    ids_by_name,
    offsets_to_commit,
    own_error,
    with_names,
)
from penstock_gateway.coordination.transaction_commands import (
    TRANSACTIONS_UNAVAILABLE,
    transaction_command,
    transaction_error,
)
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics, HasTransactionCommands

FIRST_VERSION_LOADING = 2  # older clients fail at COORDINATOR_LOAD_IN_PROGRESS
FIRST_VERSION_ABORTABLE = 4  # from this version on, clients know TRANSACTION_ABORTABLE (KIP-890)
FIRST_VERSION_ADDS = 5  # from this version on, AddOffsetsToTxn is not needed before
FIRST_VERSION_IDS = 6  # of topics


class Needs(HasClock, HasSequencer, HasTopics, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    by_id = version >= FIRST_VERSION_IDS
    try:
        topics = await with_names(gateway.topics, request.topics) if by_id else request.topics
    except Unavailable:
        return await _answer(request.topics, itertools.repeat(TRANSACTIONS_UNAVAILABLE))
    slices = Slices()
    offsets = await offsets_to_commit(topics, slices)
    own_errors = [own_error(each, by_id) async for each in slices.of(offsets)]
    kept = [offset for offset, error in zip(offsets, own_errors, strict=True) if not error]
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
        topic_ids=ids_by_name(topics),
    )
    answered: Iterator[ErrorCode] = iter(())
    if kept or not offsets:
        answered = iter(_errors(version, await transaction_command(gateway, client, command), len(kept)))
    return await _answer(topics, [error or next(answered) for error in own_errors])


async def _answer(topics: list[TxnOffsetCommitRequestTopic], errors: Iterable[ErrorCode]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=await answers_by_topic(
            topics, errors, Slices(), TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
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
