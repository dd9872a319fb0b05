"""OffsetForLeaderEpoch: finds the end of an epoch; all records have one epoch, so it ends with the log (KIP-320)."""

from dataclasses import dataclass
from typing import Protocol

import structlog

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.log import EARLIEST, LATEST, OffsetOf, OffsetsQuery, OffsetsView
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api.offset_for_leader_epoch import (
    API as API,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.parts import HasSequencer, HasTopics
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, locate

log = structlog.get_logger()


@dataclass(slots=True)
class _Wanted:
    """One partition of the request, the query for the sequencers, and the answer."""

    asked: OffsetForLeaderPartition
    question: OffsetOf | None
    answer: EpochEndOffset


class Needs(HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    located = await locate(gateway.topics, (topic.topic for topic in request.topics))
    slices = Slices()
    wanted = [
        _wanted(located.partition(topic.topic, asked.partition, asked.current_leader_epoch), asked)
        async for topic in slices.of(request.topics)
        async for asked in slices.of(topic.partitions)
    ]
    await _ask(gateway, wanted)
    answers = iter([each.answer for each in wanted])
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic.topic, [next(answers) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _wanted(topic: TopicView | ErrorCode, asked: OffsetForLeaderPartition) -> _Wanted:
    if isinstance(topic, ErrorCode):
        return _Wanted(asked, None, EpochEndOffset(topic, asked.partition))
    nothing = EpochEndOffset(partition=asked.partition)
    if not 0 <= asked.leader_epoch <= topic.leader_epoch:
        return _Wanted(asked, None, nothing)
    # No record has an earlier epoch. As in Kafka, such an epoch ends at the first record.
    end = LATEST if asked.leader_epoch == topic.leader_epoch else EARLIEST
    return _Wanted(asked, OffsetOf(topic.topic_id, asked.partition, end), nothing)


async def _ask(gateway: Needs, wanted: list[_Wanted]) -> None:
    known = [(each, each.question) for each in wanted if each.question is not None]
    if not known:
        return
    query = OffsetsQuery(0, [question for _, question in known], fresh=True)
    try:
        view = await gateway.sequencer.query("offsets", query, OffsetsView)
    except Unavailable as error:
        log.warning("epoch_ends_not_found", partitions=len(known), error=str(error))
        for each, _ in known:
            each.answer = EpochEndOffset(READ_UNAVAILABLE, each.asked.partition)
        return
    for (each, _), found in zip(known, view.partitions, strict=True):
        if found.rejection:
            each.answer = EpochEndOffset(error_of(found.rejection), each.asked.partition)
        else:
            each.answer = EpochEndOffset(0, each.asked.partition, each.asked.leader_epoch, found.offset)
