"""ListOffsets: finds the ends of partitions, and the first offset at or after a time (KIP-79, KIP-734)."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import structlog

from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.log import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetOf, OffsetsQuery, OffsetsView
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
from penstock_gateway.fetch.timestamp_search import TimeSearch, search
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
    topic_id: TopicId | None = None
    from_offset: int = 0  # the start of the search by timestamp
    error: ErrorCode = ErrorCode.NONE
    offset: int = NOTHING
    timestamp: int = NOTHING
    leader_epoch: int = NOTHING
    last_stable_offset: int = NOTHING
    search: TimeSearch | None = None

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
    await _find(gateway, wanted)
    gone = [each for each in wanted if each.search is not None and isinstance(each.search.error, NotFound)]
    await _find(gateway, gone)  # again: compaction replaced these extents after the answer
    await _find(gateway, [each for each in wanted if _moves_on(each)])
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
            each.topic_id = topic.topic_id


async def _find(gateway: Needs, wanted: list[_Wanted]) -> None:
    await _ask(gateway, wanted)
    await _search(gateway, wanted)


def _moves_on(each: _Wanted) -> bool:
    """Whether all records of this time in the extent are deleted; if so, continue behind the extent."""
    done = each.search
    if done is None or done.found is not None or done.error is not None or done.start_offset <= done.extent.base_offset:
        return False
    each.from_offset = done.extent.last_offset + 1
    return True


async def _ask(gateway: Needs, wanted: list[_Wanted]) -> None:
    """Query the sequencers: the answer is the offset, or the extent to search."""
    known = [(each, each.topic_id) for each in wanted if each.topic_id is not None]
    if not known:
        return
    partitions = [
        OffsetOf(topic_id, each.asked.partition_index, each.time, each.from_offset) for each, topic_id in known
    ]
    try:
        view = await gateway.sequencer.query("offsets", OffsetsQuery(0, partitions, fresh=True), OffsetsView)
    except Unavailable as error:
        log.warning("offsets_not_listed", partitions=len(known), error=str(error))
        for each, _ in known:
            each.error, each.search = READ_UNAVAILABLE, None
        return
    for (each, _), found in zip(known, view.partitions, strict=True):
        each.error = error_of(found.rejection)
        each.offset = found.offset
        each.last_stable_offset = found.last_stable_offset
        each.leader_epoch = found.leader_epoch
        each.search = None
        if found.extent is not None and not each.error:
            if each.time == MAX_TIMESTAMP:  # also among deleted records of its extent; so does Kafka
                each.search = TimeSearch(found.extent, found.extent.max_timestamp)
            else:
                each.search = TimeSearch(found.extent, each.time, found.log_start_offset)


async def _search(gateway: Needs, wanted: list[_Wanted]) -> None:
    await search(gateway.log_reader, [each.search for each in wanted if each.search is not None])


def _answer(each: _Wanted) -> ListOffsetsPartitionResponse:
    if each.search is not None:
        _take_search(each, each.search)
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
