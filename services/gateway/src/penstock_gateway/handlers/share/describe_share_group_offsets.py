"""DescribeShareGroupOffsets: lists the start offset and the lag of share groups in each partition (KIP-932)."""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.share import ShareOffsetsQuery, ShareOffsetsView, ShareOffsetTopic, ShareOffsetView
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
    topics = asked.topics
    query = ShareOffsetsQuery(
        0,
        asked.group_id,
        None if topics is None else [ShareOffsetTopic(each.topic_name, each.partitions) for each in topics],
        fresh=True,
    )
    try:
        view = await gateway.sequencer.query("share_offsets", query, ShareOffsetsView)
    except Unavailable as unavailable:
        return _rejected(asked.group_id, GROUPS_UNAVAILABLE, str(unavailable))
    if view.rejection:
        return _rejected(asked.group_id, error_of(view.rejection), f"Group {asked.group_id} not found.")
    by_topic: dict[str, list[ShareOffsetView]] = {}
    for offset in view.offsets:
        by_topic.setdefault(offset.topic, []).append(offset)
    return DescribeShareGroupOffsetsResponseGroup(asked.group_id, [_topic_answer(*each) for each in by_topic.items()])


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
