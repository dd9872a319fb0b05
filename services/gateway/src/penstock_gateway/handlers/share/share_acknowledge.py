"""ShareAcknowledge: what became of records that a member of a share group acquired (KIP-932)."""

from collections.abc import Mapping

from penstock.kafkawire.api.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.context import Client, Gateway
from penstock_gateway.metadata.partition_lookup import locate
from penstock_gateway.share.ack_validation import FIRST_VERSION_RENEW
from penstock_gateway.share.acknowledge import Acknowledged, acknowledge, acknowledged_of, topic_ids
from penstock_gateway.share.commands import level_error
from penstock_gateway.share.sessions import CLOSING_EPOCH, OPENING_EPOCH, ShareSession
from penstock_gateway.tail.tail_index import PartitionKey

UNKNOWN_LEADER = LeaderIdAndEpoch(-1, -1)  # the client asks for it if it has to know


async def handle(
    gateway: Gateway, client: Client, version: int, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    session = _session(gateway, client, request)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    located = await locate(gateway, topic_ids(request.topics))
    renews = version >= FIRST_VERSION_RENEW and request.is_renew_ack
    acknowledged = acknowledged_of(request.topics, located, renews=renews)
    lock_ms = await acknowledge(
        gateway,
        request.group_id or "",
        request.member_id or "",
        list(acknowledged.values()),
        ended=session if request.share_session_epoch == CLOSING_EPOCH else None,
    )
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=_answers(request, acknowledged))


def _session(gateway: Gateway, client: Client, request: ShareAcknowledgeRequest) -> ShareSession | ErrorCode:
    """The session, which goes on or is closed; or why the request cannot be taken."""
    error = level_error(gateway)
    if error:
        return error
    if not request.group_id or not request.member_id:
        return ErrorCode.INVALID_REQUEST
    member, epoch = (request.group_id, request.member_id), request.share_session_epoch
    if epoch == OPENING_EPOCH:  # nothing can have been acquired yet
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if epoch == CLOSING_EPOCH:
        return client.share_sessions.close(member)
    return client.share_sessions.go_on(member, epoch)


def _answers(
    request: ShareAcknowledgeRequest, acknowledged: Mapping[PartitionKey, Acknowledged]
) -> list[ShareAcknowledgeTopicResponse]:
    return [
        ShareAcknowledgeTopicResponse(
            topic.topic_id,
            [
                _answer(partition.partition_index, acknowledged.get((topic.topic_id, partition.partition_index)))
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _answer(partition: int, acknowledged: Acknowledged | None) -> PartitionData:
    error = ErrorCode.NONE if acknowledged is None else acknowledged.error
    message = None if acknowledged is None else acknowledged.message
    return PartitionData(partition, error, message, UNKNOWN_LEADER)
