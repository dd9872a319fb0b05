"""AlterShareGroupOffsets: moves the start offsets of a share group without members (KIP-932)."""

from typing import Protocol

from penstock.contracts.commands import AlterShareOffsets, PerItem, Rejected, ShareOffset
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.alter_share_group_offsets import (
    API as API,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.feature_levels import NO_SHARE_GROUPS, share_groups_error
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasSettings, HasTopics
from penstock_gateway.share.commands import topic_ids_by_name


class Needs(HasClock, HasKnownOutage, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    error = share_groups_error(gateway)
    if error:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=NO_SHARE_GROUPS)
    offsets = [
        ShareOffset(topic.topic_name, each.partition_index, each.start_offset)
        for topic in request.topics
        for each in topic.partitions
    ]
    now_ms, seen = gateway.clock.now_ms(), client.seen_sequence
    command = AlterShareOffsets(now_ms, request.group_id, offsets, seen, client.principal)
    try:
        outcome = await group_command(gateway, client, command)
        ids = await topic_ids_by_name(gateway.topics, [topic.topic_name for topic in request.topics])
    except Unavailable as unavailable:
        return AlterShareGroupOffsetsResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(unavailable))
    if isinstance(outcome, Rejected):
        return AlterShareGroupOffsetsResponse(
            error_code=error_of(outcome.rejection), error_message=outcome.message or None
        )
    assert isinstance(outcome, PerItem), f"unexpected outcome of new offsets: {outcome}"
    return _response(request, outcome, ids)


def _response(
    request: AlterShareGroupOffsetsRequest, outcome: PerItem, ids: dict[str, bytes]
) -> AlterShareGroupOffsetsResponse:
    rest = iter(outcome.rejections)
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                topic.topic_name,
                ids[topic.topic_name],
                [
                    AlterShareGroupOffsetsResponsePartition(each.partition_index, error_of(next(rest)))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
