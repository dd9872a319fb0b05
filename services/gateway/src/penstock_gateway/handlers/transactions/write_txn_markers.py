"""WriteTxnMarkers: aborts a transaction by one of its partitions, for an administrator; commits are rejected (KIP-664).

In Kafka a marker ends a transaction in one partition, even against the state of the coordinator. In Penstock a
transaction ends everywhere at once. So the open transaction of the partition is aborted as a whole. Its producer is
fenced, as after a time-out. Without an open transaction the request changes nothing.
"""

from typing import Protocol

from penstock.contracts.commands import EndTxn, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.transactions import (
    DescribeTransactionsQuery,
    DescribeTransactionsView,
    TransactionsQuery,
    TransactionsView,
    TransactionView,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.write_txn_markers import (
    API as API,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.transaction_commands import (
    TRANSACTIONS_UNAVAILABLE,
    transaction_command,
    transaction_error,
)
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics, HasTransactionCommands
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, Located, locate

VERSION_WITH_EPOCHS = 2  # the transaction version in which a marker has a later epoch than its records (KIP-890)
ONGOING, ABORTED = "Ongoing", "CompleteAbort"
Partition = tuple[str, int]


class Needs(HasClock, HasSequencer, HasTopics, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    located = await locate(gateway.topics, (topic.name for marker in request.markers for topic in marker.topics))
    slices = Slices()
    return WriteTxnMarkersResponse(
        [await _result(gateway, client, located, marker, slices) async for marker in slices.of(request.markers)]
    )


async def _result(
    gateway: Needs, client: Client, located: Located, marker: WritableTxnMarker, slices: Slices
) -> WritableTxnMarkerResult:
    partitions = [(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]
    errors = await _validation_errors(located, marker, partitions, slices)
    left = [partition for partition in partitions if partition not in errors]
    if left:
        errors |= await _abort(gateway, client, marker, left)
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(number, errors[topic.name, number])
                    async for number in slices.of(topic.partition_indexes)
                ],
            )
            async for topic in slices.of(marker.topics)
        ],
    )


async def _validation_errors(
    located: Located, marker: WritableTxnMarker, partitions: list[Partition], slices: Slices
) -> dict[Partition, ErrorCode]:
    """The errors that do not depend on the transaction."""
    validation_errors: dict[Partition, ErrorCode] = {}
    async for name, number in slices.of(partitions):
        topic = located.partition(name, number, -1)
        if marker.transaction_result:  # only a coordinator may commit, and no client is one
            validation_errors[name, number] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif isinstance(topic, ErrorCode):
            validation_errors[name, number] = topic
        elif marker.coordinator_epoch < topic.leader_epoch:
            validation_errors[name, number] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return validation_errors


async def _abort(
    gateway: Needs, client: Client, marker: WritableTxnMarker, partitions: list[Partition]
) -> dict[Partition, ErrorCode]:
    try:
        found = await _transaction_of(gateway, marker.producer_id)
    except Unavailable:
        return dict.fromkeys(partitions, READ_UNAVAILABLE)
    if found is None:
        return dict.fromkeys(partitions, ErrorCode.NONE)
    view, sequence = found
    opened = {(topic.topic, number) for topic in view.topics for number in topic.partitions}
    is_open = view.state == ONGOING and any(partition in opened for partition in partitions)
    if _is_fenced(marker, view, is_open=is_open):
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH)
    error = await _end(gateway, client, view, sequence) if is_open else ErrorCode.NONE
    return {partition: error if partition in opened else ErrorCode.NONE for partition in partitions}


async def _transaction_of(gateway: Needs, producer_id: int) -> tuple[TransactionView, int] | None:
    """The transaction of this producer id, and the journal sequence of that state; None if there is none."""
    query = TransactionsQuery(0, producer_ids=[producer_id], fresh=True)
    listed = await gateway.sequencer.query("transactions", query, TransactionsView)
    if not listed.transactions:
        return None
    named = DescribeTransactionsQuery(listed.sequence, [listed.transactions[0].transactional_id])
    described = await gateway.sequencer.query("describe_transactions", named, DescribeTransactionsView)
    view = described.transactions[0]
    return (view, described.sequence) if view.producer_id == producer_id else None


def _is_fenced(marker: WritableTxnMarker, view: TransactionView, *, is_open: bool) -> bool:
    """Whether the marker's epoch is too old. A repeated request that aborted the transaction is not fenced."""
    if is_open and marker.transaction_version >= VERSION_WITH_EPOCHS:
        return marker.producer_epoch <= view.producer_epoch
    is_repeated = view.state == ABORTED and marker.producer_epoch + 1 == view.producer_epoch
    return marker.producer_epoch < view.producer_epoch and not is_repeated


async def _end(gateway: Needs, client: Client, view: TransactionView, sequence: int) -> ErrorCode:
    command = EndTxn(
        now_ms=gateway.clock.now_ms(),
        transactional_id=view.transactional_id,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        committed=False,
        bumps=True,
        seen_sequence=sequence,
    )
    outcome = await transaction_command(gateway, client, command)
    if isinstance(outcome, Rejected):
        if outcome.rejection == Rejection.STALE:  # the transaction ended meanwhile, and another one may have begun
            return READ_UNAVAILABLE
        outcome = transaction_error(outcome.rejection, fenced=ErrorCode.INVALID_PRODUCER_EPOCH)
    if isinstance(outcome, ErrorCode):  # administration clients look up the partition's leader, not a coordinator
        return READ_UNAVAILABLE if outcome is TRANSACTIONS_UNAVAILABLE else outcome
    return ErrorCode.NONE
