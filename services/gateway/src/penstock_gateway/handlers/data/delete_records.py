"""DeleteRecords: moves log start offsets at once; the records before them are removed later (KIP-107)."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from penstock.contracts.commands import (
    LOGS_PER_COMMAND_MAX,
    TO_HIGH_WATERMARK,
    DeleteRecords,
    LogOffset,
    LogsTrimmed,
    Outcome,
    Rejected,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId, is_internal_topic
from penstock.contracts.queries.log import LATEST, OffsetOf, OffsetsQuery, OffsetsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.delete_records import (
    API as API,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import run_commands
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, locate
from penstock_gateway.tail.tail_subscriber import HasTail

NO_WATERMARK = -1


@dataclass(slots=True)
class _Wanted:
    """One partition of the request, and its answer so far; `offset` is the new log start offset."""

    topic: str
    asked: DeleteRecordsPartition
    offset: int
    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = NO_WATERMARK


Found = list[tuple[_Wanted, TopicId]]


class Needs(HasClock, HasSequencer, HasTail, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    slices = Slices()
    wanted = [
        _Wanted(topic.name, partition, partition.offset)
        async for topic in slices.of(request.topics)
        async for partition in slices.of(topic.partitions)
    ]
    found = await _locate(gateway, wanted, slices)
    for start in range(0, len(found), LOGS_PER_COMMAND_MAX):
        some = await _resolve(gateway, found[start : start + LOGS_PER_COMMAND_MAX])
        await _delete(gateway, some, request.timeout_ms)
    answers = iter([_answer(each) async for each in slices.of(wanted)])
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=[next(answers) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


async def _locate(gateway: Needs, wanted: list[_Wanted], slices: Slices) -> Found:
    """The partitions that exist; the others get their error."""
    located = await locate(gateway.topics, (each.topic for each in wanted))
    times = Counter((each.topic, each.asked.partition_index) for each in wanted)
    found: Found = []
    async for each in slices.of(wanted):
        topic = located.partition(each.topic, each.asked.partition_index, NO_EPOCH)
        if times[each.topic, each.asked.partition_index] > 1:
            each.error = ErrorCode.INVALID_REQUEST
        elif is_internal_topic(each.topic):
            each.error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif isinstance(topic, ErrorCode):
            each.error = topic
        else:
            found.append((each, topic.topic_id))
    return found


async def _resolve(gateway: Needs, some: Found) -> Found:
    """The partitions with a known end of the deletion: a deletion of all records ends at the present end of the log.

    The command must have that offset. A delayed command "delete all", that was sent again meanwhile, would also delete
    records that were written after the answer.
    """
    whole = [(each, topic_id) for each, topic_id in some if each.offset == TO_HIGH_WATERMARK]
    if not whole:
        return some
    ends = [OffsetOf(topic_id, each.asked.partition_index, LATEST) for each, topic_id in whole]
    try:
        view = await gateway.sequencer.query("offsets", OffsetsQuery(0, ends, fresh=True), OffsetsView)
    except Unavailable:
        for each, _ in whole:
            each.error = ADMINISTRATION_UNAVAILABLE
    else:
        for (each, _), end in zip(whole, view.partitions, strict=True):
            each.error, each.offset = error_of(end.rejection), end.offset
    return [(each, topic_id) for each, topic_id in some if not each.error]


async def _delete(gateway: Needs, some: Found, timeout_ms: int) -> None:
    """Delete in one command, so in one entry: the caller limits its size."""
    if not some:
        return
    logs = [LogOffset(topic_id, each.asked.partition_index, each.offset) for each, topic_id in some]
    (outcome,) = await run_commands(gateway, [DeleteRecords(gateway.clock.now_ms(), logs)], timeout_ms)
    for (each, topic_id), (rejection, log_start_offset) in zip(some, _results(outcome, len(logs)), strict=True):
        each.error = error_of(rejection)
        if rejection == Rejection.NONE:
            each.low_watermark = log_start_offset
            # Reads through this gateway must not find the deleted records, even before the announcement arrives.
            gateway.tail.remove((topic_id, each.asked.partition_index))
        elif rejection == Rejection.UNKNOWN_TOPIC:
            gateway.topics.remove([each.topic])


def _results(outcome: Outcome, count: int) -> list[tuple[int, int]]:
    """Rejection and log start offset of each log."""
    if isinstance(outcome, Rejected):
        return [(outcome.rejection, NO_WATERMARK)] * count
    assert isinstance(outcome, LogsTrimmed), f"unexpected outcome of a deletion of records: {outcome}"
    return [(log.rejection, log.log_start_offset) for log in outcome.logs]


def _answer(each: _Wanted) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=each.asked.partition_index, low_watermark=each.low_watermark, error_code=each.error
    )
