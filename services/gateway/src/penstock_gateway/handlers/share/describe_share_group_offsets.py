"""DescribeShareGroupOffsets: lists the start offset and the lag of share groups in each partition (KIP-932)."""

from itertools import groupby
from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.queries.share import (
    SHARE_OFFSETS_ASKED_MAX,
    ShareOffsetsQuery,
    ShareOffsetsView,
    ShareOffsetTopic,
    ShareOffsetView,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.describe_share_group_offsets import (
    API as API,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.schema import NO_UUID
from penstock.runtime.bus.listings import all_share_offsets
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.feature_levels import NO_SHARE_GROUPS, share_groups_error
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasSettings


class Needs(HasClock, HasSequencer, HasSettings, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    described: set[str] = set()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
    for group in request.groups:
        # All offsets of a group may be a million times as large as its name.
        is_repeated = group.group_id in described
        groups.append(_repeated(group.group_id) if is_repeated else await _describe(gateway, group))
        described.add(group.group_id)
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _repeated(group_id: str) -> DescribeShareGroupOffsetsResponseGroup:
    return _rejected(group_id, ErrorCode.INVALID_REQUEST, "The group occurs more than once in the request.")


async def _describe(
    gateway: Needs, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    error = share_groups_error(gateway)
    if error:
        return _rejected(asked.group_id, error, NO_SHARE_GROUPS)
    try:
        view = await _offsets(gateway, asked)
    except Unavailable as unavailable:
        return _rejected(asked.group_id, GROUPS_UNAVAILABLE, str(unavailable))
    if view.rejection:
        return _rejected(asked.group_id, error_of(view.rejection), f"Group {asked.group_id} not found.")
    by_topic: dict[str, list[ShareOffsetView]] = {}
    for offset in view.offsets:
        by_topic.setdefault(offset.topic, []).append(offset)
    return DescribeShareGroupOffsetsResponseGroup(asked.group_id, [_topic_answer(*each) for each in by_topic.items()])


async def _offsets(gateway: Needs, asked: DescribeShareGroupOffsetsRequestGroup) -> ShareOffsetsView:
    """The group's offsets in the partitions of the request, asked for in parts that each fit a message."""
    if asked.topics is None:
        return await all_share_offsets(gateway.sequencer, asked.group_id)
    wanted = [(topic.topic_name, number) for topic in asked.topics for number in topic.partitions]
    # No topic has such a name, and each partition in an answer repeats it.
    found = [
        ShareOffsetView(name, b"", number, Rejection.UNKNOWN_TOPIC, -1, -1, -1)
        for name, number in wanted
        if not is_legal_topic_name(name)
    ]
    wanted = [each for each in wanted if is_legal_topic_name(each[0])]
    for begin in range(0, max(len(wanted), 1), SHARE_OFFSETS_ASKED_MAX):
        part = wanted[begin : begin + SHARE_OFFSETS_ASKED_MAX]
        topics = [
            ShareOffsetTopic(name, [number for _, number in places])
            for name, places in groupby(part, key=lambda place: place[0])
        ]
        query = ShareOffsetsQuery(0, asked.group_id, topics, fresh=not begin)
        view = await gateway.sequencer.query("share_offsets", query, ShareOffsetsView)
        if view.rejection:
            return view
        found += view.offsets
    return ShareOffsetsView(0, found)


def _rejected(group_id: str, error: ErrorCode, message: str) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=error, error_message=message)


def _topic_answer(topic: str, offsets: list[ShareOffsetView]) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic,
        offsets[0].topic_id or NO_UUID,
        [
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition,
                start_offset=each.start_offset,
                leader_epoch=each.leader_epoch,
                lag=each.lag,
                error_code=error_of(each.rejection),
            )
            for each in offsets
        ],
    )
