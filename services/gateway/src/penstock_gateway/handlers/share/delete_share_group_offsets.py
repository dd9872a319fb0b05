"""DeleteShareGroupOffsets: a share group without members forgets topics (KIP-932)."""

from penstock.contracts.commands import DeleteShareOffsets, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock_gateway.context import Client, Gateway
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.share.commands import NOT_YET, level_error, topic_ids_by_name


async def handle(
    gateway: Gateway, client: Client, version: int, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    error = level_error(gateway)
    if error:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=NOT_YET)
    names = [topic.topic_name for topic in request.topics]
    command = DeleteShareOffsets(gateway.clock.now_ms(), request.group_id, names, gateway.sequencer.seen_sequence)
    try:
        outcome = await group_command(gateway, command)
        ids = await topic_ids_by_name(gateway, names)
    except Unavailable as unavailable:
        return DeleteShareGroupOffsetsResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(unavailable))
    if isinstance(outcome, Rejected):
        return DeleteShareGroupOffsetsResponse(
            error_code=error_of(outcome.rejection), error_message=outcome.message or None
        )
    assert isinstance(outcome, PerItem), f"an unexpected answer to a deletion of offsets: {outcome}"
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(name, ids[name], error_of(rejection))
            for name, rejection in zip(names, outcome.rejections, strict=True)
        ]
    )
