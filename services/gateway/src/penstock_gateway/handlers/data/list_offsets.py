"""ListOffsets: finds the ends of partitions, and the first offset at or after a time (KIP-79, KIP-734)."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import structlog

from penstock.contracts.errors import Corrupt
from penstock.contracts.queries.log import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetOf
from penstock.kafkawire.api.list_offsets import (
    API as API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.objectstore.errors import NotFound
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.fetch.log_reader import HasLogReader
from penstock_gateway.fetch.offset_lookup import OffsetLookup, look_up
from penstock_gateway.fetch.timestamp_search import TimeSearch
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.parts import HasSequencer, HasTopics
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, locate

log = structlog.get_logger()

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
IN_SECOND_TIER = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)  # there is no second tier, so there is no such offset
# The first version with each special timestamp; other timestamps below 0 are invalid.
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11, EARLIEST: 1, LATEST: 1}
NEVER = 32_767
READ_COMMITTED = 1
NOTHING = -1


@dataclass(slots=True)
class _Wanted:
    """One partition of the request, and its answer so far."""

    topic: str
    asked: ListOffsetsPartition
    committed_only: bool
    lookup: OffsetLookup | None = None  # None if the partition has an error, or has no such offset
    error: ErrorCode = ErrorCode.NONE
    offset: int = NOTHING
    timestamp: int = NOTHING
    leader_epoch: int = NOTHING
    last_stable_offset: int = NOTHING

    @property
    def time(self) -> int:
        """The timestamp to look for; all data counts as local."""
        return EARLIEST if self.asked.timestamp == EARLIEST_LOCAL else self.asked.timestamp


class Needs(HasLogReader, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed_only = request.isolation_level == READ_COMMITTED
    slices = Slices()
    wanted = [
        _Wanted(topic.name, partition, committed_only)
        async for topic in slices.of(request.topics)
        async for partition in slices.of(topic.partitions)
    ]
    await _locate(gateway, version, wanted, slices)
    lookups = [each.lookup for each in wanted if each.lookup is not None]
    await look_up(gateway.sequencer, gateway.log_reader, lookups)
    answers = iter([_answer(each) async for each in slices.of(wanted)])
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[next(answers) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


async def _locate(gateway: Needs, version: int, wanted: list[_Wanted], slices: Slices) -> None:
    located = await locate(gateway.topics, (each.topic for each in wanted))
    times = Counter((each.topic, each.asked.partition_index) for each in wanted)
    async for each in slices.of(wanted):
        asked = each.asked
        topic = located.partition(each.topic, asked.partition_index, asked.current_leader_epoch)
        if times[each.topic, asked.partition_index] > 1:
            each.error = ErrorCode.INVALID_REQUEST
        elif asked.timestamp < 0 and version < SINCE.get(asked.timestamp, NEVER):
            each.error = ErrorCode.UNSUPPORTED_VERSION
        elif isinstance(topic, ErrorCode):
            each.error = topic
        elif asked.timestamp not in IN_SECOND_TIER:
            each.lookup = OffsetLookup(OffsetOf(topic.topic_id, asked.partition_index, each.time))


def _answer(each: _Wanted) -> ListOffsetsPartitionResponse:
    if each.lookup is not None:
        _take(each, each.lookup)
    _hide_undecided(each)
    if each.error:
        return ListOffsetsPartitionResponse(partition_index=each.asked.partition_index, error_code=each.error)
    return ListOffsetsPartitionResponse(
        partition_index=each.asked.partition_index,
        timestamp=each.timestamp,
        offset=each.offset,
        leader_epoch=each.leader_epoch if each.offset != NOTHING else NOTHING,
    )


def _hide_undecided(each: _Wanted) -> None:
    """For read_committed the log ends at the last stable offset (KIP-98)."""
    if not each.committed_only or not 0 <= each.last_stable_offset <= each.offset:
        return
    if each.time == LATEST:
        each.offset = each.last_stable_offset
    elif each.time != EARLIEST:
        each.offset = each.timestamp = NOTHING


def _take(each: _Wanted, lookup: OffsetLookup) -> None:
    if lookup.error is not None or lookup.answer is None:
        each.error = READ_UNAVAILABLE
        return
    each.error = error_of(lookup.answer.rejection)
    each.offset = lookup.answer.offset
    each.last_stable_offset = lookup.answer.last_stable_offset
    each.leader_epoch = lookup.answer.leader_epoch
    if lookup.search is not None:
        _take_search(each, lookup.search)


def _take_search(each: _Wanted, done: TimeSearch) -> None:
    if done.found is not None:
        each.offset, each.timestamp = done.found
    elif done.error is None:
        each.offset = NOTHING
    elif isinstance(done.error, Corrupt | NotFound):
        log.error("records_not_readable", topic=each.topic, partition=each.asked.partition_index, error=str(done.error))
        each.error = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        each.error = READ_UNAVAILABLE
