"""OffsetDelete: deletes committed offsets of topics that no member of the group subscribes to (KIP-496)."""

from typing import Protocol

from penstock.contracts.commands import DeletedOffset, DeleteOffsets, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.offset_delete import (
    API as API,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.feature_levels import until_level
from penstock_gateway.kafka.parts import HasClock, HasSequencer


class Needs(HasClock, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    await until_level(gateway, OFFSET_EXPIRY_LEVEL)
    level = gateway.sequencer.seen_level
    if level is not None and level < OFFSET_EXPIRY_LEVEL:  # until the end of an upgrade no sequencer journals it
        return OffsetDeleteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    slices = Slices()
    gone = [
        DeletedOffset(topic.name, each.partition_index)
        async for topic in slices.of(request.topics)
        async for each in slices.of(topic.partitions)
    ]
    command = DeleteOffsets(gateway.clock.now_ms(), request.group_id, gone, client.seen_sequence)
    try:
        outcome = await group_command(gateway, client, command)
    except Unavailable:
        return OffsetDeleteResponse(error_code=GROUPS_UNAVAILABLE)
    if isinstance(outcome, Rejected):
        return OffsetDeleteResponse(error_code=error_of(outcome.rejection))
    assert isinstance(outcome, PerItem), f"unexpected outcome of a deletion of offsets: {outcome}"
    if Rejection.STALE in outcome.rejections:
        # Clients retry only an error of the whole group. A second deletion of the same offset has no effect.
        return OffsetDeleteResponse(error_code=error_of(Rejection.STALE))
    return await _response(request, outcome, slices)


async def _response(request: OffsetDeleteRequest, outcome: PerItem, slices: Slices) -> OffsetDeleteResponse:
    rest = iter(outcome.rejections)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(each.partition_index, error_of(next(rest)))
                    async for each in slices.of(topic.partitions)
                ],
            )
            async for topic in slices.of(request.topics)
        ]
    )
