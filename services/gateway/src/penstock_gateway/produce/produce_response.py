"""The answer to a Produce request, from the check of its batches and the results of the state machine. Pure."""

from collections.abc import Sequence

import msgspec

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchResult
from penstock.contracts.codec import Buffer
from penstock.contracts.ids import topic_id_text
from penstock.contracts.messages import FlushBatch
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import LOG_APPEND_TIME
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.metadata.partition_lookup import TopicRef, rejection_error
from penstock_gateway.produce.producer_route import Flushed
from penstock_gateway.produce.record_validation import RecordValidationError

FIRST_VERSION_ABORTABLE = 11  # from here on clients know TRANSACTION_ABORTABLE (KIP-890)
FIRST_VERSION_IDS = 13  # from here on topics have ids in place of names (KIP-516)
NO_TIMESTAMP = -1
MESSAGES: dict[int, str] = {
    Rejection.PRODUCERS_FULL: (
        "too many idempotent producers, of all clients or of this principal: until some were idle for long, no more "
        "can begin here"
    ),
}

BatchError = ErrorCode | RecordValidationError
BatchCheck = int | BatchError  # of one partition: the index of its batch among the accepted ones, or its error


class Checked(msgspec.Struct):
    """A request after the check: the batches for the flusher, and for each partition the index there or the error."""

    topics: dict[TopicRef, TopicView]  # that exist
    batches: list[FlushBatch]
    payload: list[Buffer]
    checks: list[BatchCheck]  # in the request's order
    is_express: bool = True  # the lane of all accepted batches
    topic_bytes: dict[str, int] = {}  # of all accepted batches, by topic


def topic_ref(version: int, topic: TopicProduceData) -> TopicRef:
    return topic.topic_id if version >= FIRST_VERSION_IDS else topic.name


async def produce_response(
    version: int, request: ProduceRequest, checked: Checked, flushed: Flushed | None, slices: Slices
) -> ProduceResponse:
    """The answer in the order of the request; `flushed` is None if no batch was accepted."""
    results = flushed.results if flushed else []
    checks = iter(checked.checks)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [
                    _partition_response(version, topic, data.index, next(checks), checked, results)
                    async for data in slices.of(topic.partition_data)
                ],
            )
            async for topic in slices.of(request.topic_data)
        ],
        throttle_time_ms=flushed.throttle_ms if flushed else 0,
    )


def close_on_error(response: ProduceResponse) -> None:
    """End the connection if a batch failed: with acks=0 there is no answer to report it."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                error = ErrorCode(partition.error_code).name
                name = topic.name or topic_id_text(topic.topic_id)
                raise CloseConnection(f"{error} for {name}-{partition.index} produced with acks=0")


def _partition_response(
    version: int,
    topic: TopicProduceData,
    index: int,
    check: BatchCheck,
    checked: Checked,
    results: Sequence[BatchResult],
) -> PartitionProduceResponse:
    if isinstance(check, ErrorCode):
        return PartitionProduceResponse(index, check, -1)
    if isinstance(check, RecordValidationError):
        return PartitionProduceResponse(
            index=index,
            error_code=check.error,
            base_offset=-1,
            record_errors=check.record_errors,
            error_message=check.message,
        )
    meta, result = checked.batches[check].meta, results[check]
    is_stamped = meta.attributes & LOG_APPEND_TIME and not result.rejection
    return PartitionProduceResponse(
        index=index,
        error_code=_batch_error(version, topic_ref(version, topic), meta, result.rejection),
        base_offset=result.base_offset,
        log_append_time_ms=meta.max_timestamp if is_stamped else NO_TIMESTAMP,
        log_start_offset=result.log_start_offset,
        error_message=MESSAGES.get(result.rejection),
    )


def _batch_error(version: int, ref: TopicRef, meta: BatchMeta, rejection: int) -> ErrorCode:
    is_abortable = version >= FIRST_VERSION_ABORTABLE and meta.attributes & TRANSACTIONAL
    if rejection == Rejection.INVALID_TXN_STATE and is_abortable:
        return ErrorCode.TRANSACTION_ABORTABLE
    return rejection_error(ref, rejection)
