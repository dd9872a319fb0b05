"""OffsetFetch: reads the committed offsets of groups; as in Kafka, an unknown group has offset -1 and no error."""

from typing import Protocol

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.queries.groups import CommittedOffset, GroupOffsetsQuery, GroupTopicPartitions
from penstock.kafkawire.api.offset_fetch import (
    API as API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.bus.listings import all_group_offsets
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.offset_commits import with_names
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasSequencer, HasTopics

FIRST_VERSION_GROUP_ERROR = 2
FIRST_VERSION_BATCHED = 8  # KIP-709
FIRST_VERSION_IDS = 10  # of topics
NO_OFFSET = -1
NO_EPOCH = -1

Topics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None


class _Found(msgspec.Struct, frozen=True):
    """One group's offsets by topic, in order; or the error of the whole group."""

    error: ErrorCode
    topics: dict[str, list[CommittedOffset]]


class Needs(HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if version >= FIRST_VERSION_BATCHED:
        return OffsetFetchResponse(groups=await _groups(gateway, version, request))
    query = GroupOffsetsQuery(0, request.group_id, _wanted(request.topics), fresh=True)
    one = await _find(gateway, query, request.require_stable)
    if one.error and version < FIRST_VERSION_GROUP_ERROR:
        return OffsetFetchResponse(topics=_failed_topics(request, one.error))
    return OffsetFetchResponse(topics=[_topic_answer(*item) for item in one.topics.items()], error_code=one.error)


async def _groups(gateway: Needs, version: int, request: OffsetFetchRequest) -> list[OffsetFetchResponseGroup]:
    """The offsets of each group, once: all of them may be a million times as large as its name."""
    answers: list[OffsetFetchResponseGroup] = []
    answered: set[str] = set()
    async for group in Slices().of(request.groups):
        if group.group_id in answered:
            answers.append(OffsetFetchResponseGroup(group.group_id, error_code=ErrorCode.INVALID_REQUEST))
        elif version >= FIRST_VERSION_IDS:
            answers.append(await _group_by_ids(gateway, group, request.require_stable))
        else:
            found = await _find(gateway, _query_of(group), request.require_stable)
            answers.append(await _group_answer(group.group_id, found))
        answered.add(group.group_id)
    return answers


async def _group_by_ids(
    gateway: Needs, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    """One group's offsets in topics that have ids; of all topics, those that still exist."""
    try:
        topics = None if group.topics is None else await with_names(gateway.topics, group.topics)
        known = None if topics is None else [each for each in topics if each.name]
        found = await _find(gateway, _query_of(msgspec.structs.replace(group, topics=known)), require_stable)
        ids = {name: view.topic_id for name, view in (await gateway.topics.find(found.topics)).items()}
    except Unavailable:
        return OffsetFetchResponseGroup(group.group_id, error_code=GROUPS_UNAVAILABLE)
    ids |= {each.name: each.topic_id for each in known or ()}
    answer = await _group_answer(group.group_id, found)
    answers = [msgspec.structs.replace(each, topic_id=ids[each.name]) for each in answer.topics if each.name in ids]
    if not found.error:
        answers += [failed_topic(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in topics or () if not each.name]
    return msgspec.structs.replace(answer, topics=answers)


def failed_topic(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    """The answer to each partition of a topic whose offsets cannot be read."""
    partitions = [
        OffsetFetchResponsePartitions(index, NO_OFFSET, error_code=error) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _query_of(group: OffsetFetchRequestGroup) -> GroupOffsetsQuery:
    return GroupOffsetsQuery(
        0, group.group_id, _wanted(group.topics), fresh=True, member_id=group.member_id, member_epoch=group.member_epoch
    )


def _wanted(topics: Topics) -> list[GroupTopicPartitions] | None:
    return None if topics is None else [GroupTopicPartitions(each.name, each.partition_indexes) for each in topics]


async def _find(gateway: HasSequencer, query: GroupOffsetsQuery, require_stable: bool) -> _Found:
    try:
        view = await all_group_offsets(gateway.sequencer, query)
    except Unavailable:
        return _Found(GROUPS_UNAVAILABLE, {})
    if view.rejection:
        return _Found(error_of(view.rejection), {})
    found: dict[str, list[CommittedOffset]] = {}
    async for each in Slices().of(view.offsets):
        found.setdefault(each.topic, []).append(_settled(each, require_stable))
    return _Found(ErrorCode.NONE, found)


def _settled(offset: CommittedOffset, require_stable: bool) -> CommittedOffset:
    """The offset. With `require_stable` it is empty and `pending` while a transaction may change it (KIP-447)."""
    if not offset.pending:
        return offset
    if not require_stable:
        return msgspec.structs.replace(offset, pending=False)
    return CommittedOffset(offset.topic, offset.partition, NO_OFFSET, NO_EPOCH, "", pending=True)


def _error(offset: CommittedOffset) -> ErrorCode:
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if offset.pending else ErrorCode.NONE


async def _group_answer(group_id: str, found: _Found) -> OffsetFetchResponseGroup:
    slices = Slices()
    topics = [
        OffsetFetchResponseTopics(
            name,
            NO_TOPIC_ID,
            [
                OffsetFetchResponsePartitions(
                    each.partition, each.offset, each.leader_epoch, each.metadata, _error(each)
                )
                async for each in slices.of(offsets)
            ],
        )
        async for name, offsets in slices.of(found.topics.items())
    ]
    return OffsetFetchResponseGroup(group_id, topics, found.error)


def _topic_answer(name: str, offsets: list[CommittedOffset]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name,
        [
            OffsetFetchResponsePartition(each.partition, each.offset, each.leader_epoch, each.metadata, _error(each))
            for each in offsets
        ],
    )


def _failed_topics(request: OffsetFetchRequest, error: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(index, NO_OFFSET, metadata="", error_code=error)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
