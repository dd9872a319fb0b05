"""ShareAcknowledge: takes the acknowledgements of records that a member of a share group acquired (KIP-932)."""

from collections.abc import Mapping
from typing import Protocol

from penstock.kafkawire.api.share_acknowledge import (
    API as API,
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.ending import to_the_end
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.feature_levels import HasShareGroupLevel, share_groups_error
from penstock_gateway.kafka.parts import HasTopics
from penstock_gateway.metadata.partition_lookup import locate
from penstock_gateway.share.ack_validation import FIRST_VERSION_RENEW
from penstock_gateway.share.acknowledge import Acknowledged, acknowledged_of, topic_ids
from penstock_gateway.share.commands import HasShareCommands
from penstock_gateway.share.sessions import CLOSING_EPOCH, HasShareSessions, ShareSession, has_acknowledgements
from penstock_gateway.tail.tail_index import PartitionKey

UNKNOWN_LEADER = LeaderIdAndEpoch(-1, -1)  # a client that needs the leader sends a Metadata request


class Needs(HasShareGroupLevel, HasShareCommands, HasShareSessions, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    error = share_groups_error(gateway)
    session = error or gateway.share_sessions.acknowledging(client, request)
    # The session may be at another gateway behind the same address: the state machine checks the member.
    is_elsewhere = session is ErrorCode.SHARE_SESSION_NOT_FOUND and has_acknowledgements(request)
    if isinstance(session, ErrorCode) and not is_elsewhere:
        return ShareAcknowledgeResponse(error_code=session)
    ended = None if isinstance(session, ErrorCode) or request.share_session_epoch != CLOSING_EPOCH else session
    answer = _answer(gateway, version, request, ended)
    # An ended session is closed already, and only this request releases its records.
    return await (answer if ended is None else to_the_end(answer))


async def _answer(
    gateway: Needs, version: int, request: ShareAcknowledgeRequest, ended: ShareSession | None
) -> ShareAcknowledgeResponse:
    located = await locate(gateway.topics, topic_ids(request.topics))
    renews = version >= FIRST_VERSION_RENEW and request.is_renew_ack
    slices = Slices()
    acknowledged = await acknowledged_of(request.topics, located, slices, renews=renews)
    lock_ms = await gateway.share_commands.acknowledge(
        request.group_id or "",
        request.member_id or "",
        list(acknowledged.values()),
        ended=ended,
    )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms, responses=await _answers(request, acknowledged, slices)
    )


async def _answers(
    request: ShareAcknowledgeRequest, acknowledged: Mapping[PartitionKey, Acknowledged], slices: Slices
) -> list[ShareAcknowledgeTopicResponse]:
    return [
        ShareAcknowledgeTopicResponse(
            topic.topic_id,
            [
                _partition_answer(
                    partition.partition_index, acknowledged.get((topic.topic_id, partition.partition_index))
                )
                async for partition in slices.of(topic.partitions)
            ],
        )
        async for topic in slices.of(request.topics)
    ]


def _partition_answer(partition: int, acknowledged: Acknowledged | None) -> PartitionData:
    error = ErrorCode.NONE if acknowledged is None else acknowledged.error
    message = None if acknowledged is None else acknowledged.message
    return PartitionData(partition, error, message, UNKNOWN_LEADER)
