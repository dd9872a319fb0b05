"""DeleteShareGroupOffsets: removes topics from the state of a share group without members (KIP-932)."""

from typing import Protocol

from penstock.contracts.commands import DeleteShareOffsets, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.delete_share_group_offsets import (
    API as API,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.runtime.concurrency.slices import Slices
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
    gateway: Needs, client: Client, version: int, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    error = share_groups_error(gateway)
    if error:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=NO_SHARE_GROUPS)
    names = [topic.topic_name for topic in request.topics]
    command = DeleteShareOffsets(gateway.clock.now_ms(), request.group_id, names, client.seen_sequence)
    try:
        outcome = await group_command(gateway, client, command)
        ids = await topic_ids_by_name(gateway.topics, names)
    except Unavailable as unavailable:
        return DeleteShareGroupOffsetsResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(unavailable))
    if isinstance(outcome, Rejected):
        return DeleteShareGroupOffsetsResponse(
            error_code=error_of(outcome.rejection), error_message=outcome.message or None
        )
    assert isinstance(outcome, PerItem), f"unexpected outcome of a deletion of offsets: {outcome}"
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(name, ids[name], error_of(rejection))
            async for name, rejection in Slices().of(zip(names, outcome.rejections, strict=True))
        ]
    )
