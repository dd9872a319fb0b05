"""AddPartitionsToTxn: adds partitions to a transaction, all of them or none (KIP-98)."""

from typing import Protocol

from penstock.contracts.commands import AddPartitionsToTxn, PerItem, Rejected, TransactionPartition
from penstock.contracts.ids import is_internal_topic
from penstock.kafkawire.api.add_partitions_to_txn import (
    API as API,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.transaction_commands import (
    TRANSACTIONS_UNAVAILABLE,
    fenced_error,
    transaction_command,
    transaction_error,
)
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics, HasTransactionCommands
from penstock_gateway.metadata.partition_lookup import locate

FIRST_VERSION_FENCED = 2
FIRST_VERSION_BATCHED = 4  # only between brokers: clients get the error that Kafka gives them


class Needs(HasClock, HasSequencer, HasTopics, HasTransactionCommands, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    slices = Slices()
    if version >= FIRST_VERSION_BATCHED:
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    found = await _find(gateway, request, slices)
    if not any(isinstance(each, ErrorCode) for each in found):
        partitions = [each for each in found if isinstance(each, TransactionPartition)]
        return await _response(request, await _add(gateway, client, version, request, partitions), slices)
    # As in Kafka, one wrong partition prevents all of them.
    errors = [each if isinstance(each, ErrorCode) else ErrorCode.OPERATION_NOT_ATTEMPTED for each in found]
    return await _response(request, errors, slices)


async def _find(
    gateway: Needs, request: AddPartitionsToTxnRequest, slices: Slices
) -> list[TransactionPartition | ErrorCode]:
    """The partitions, or an error for each that does not exist or that no client may write to.

    An open transaction in an internal topic would hide its newer records from readers.
    """
    topics = request.v3_and_below_topics
    located = await locate(gateway.topics, (topic.name for topic in topics), unavailable=TRANSACTIONS_UNAVAILABLE)
    found: list[TransactionPartition | ErrorCode] = []
    async for topic in slices.of(topics):
        is_internal = is_internal_topic(topic.name)
        async for number in slices.of(topic.partitions):
            view = ErrorCode.INVALID_TOPIC_EXCEPTION if is_internal else located.partition(topic.name, number, -1)
            found.append(view if isinstance(view, ErrorCode) else TransactionPartition(view.topic_id, number))
    return found


async def _add(
    gateway: Needs,
    client: Client,
    version: int,
    request: AddPartitionsToTxnRequest,
    partitions: list[TransactionPartition],
) -> list[ErrorCode]:
    command = AddPartitionsToTxn(
        now_ms=gateway.clock.now_ms(),
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=partitions,
        seen_sequence=client.seen_sequence,
    )
    outcome = await transaction_command(gateway, client, command)
    if isinstance(outcome, ErrorCode):
        return [outcome] * len(partitions)
    if isinstance(outcome, Rejected):
        error = transaction_error(outcome.rejection, fenced=fenced_error(version, FIRST_VERSION_FENCED))
        return [error] * len(partitions)
    assert isinstance(outcome, PerItem), f"unexpected outcome of partitions of a transaction: {outcome}"
    if any(outcome.rejections):  # a topic was deleted after the lookup
        gateway.topics.remove(topic.name for topic in request.v3_and_below_topics)
        return [transaction_error(each) or ErrorCode.OPERATION_NOT_ATTEMPTED for each in outcome.rejections]
    return [ErrorCode.NONE] * len(partitions)


async def _response(
    request: AddPartitionsToTxnRequest, errors: list[ErrorCode], slices: Slices
) -> AddPartitionsToTxnResponse:
    rest = iter(errors)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [AddPartitionsToTxnPartitionResult(number, next(rest)) async for number in slices.of(topic.partitions)],
            )
            async for topic in slices.of(request.v3_and_below_topics)
        ]
    )
