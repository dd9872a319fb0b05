"""ShareGroupHeartbeat: lets a member of a share group join, stay, change its subscription, and leave (KIP-932).

As with consumer groups, most heartbeats change nothing, and a query answers them; only the others are journaled.
"""

from typing import Protocol

import msgspec

from penstock.contracts.commands import LEAVE_EPOCH, Outcome, Rejected, ShareHeartbeat, ShareMembership
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.share import ShareHeartbeatQuery, ShareHeartbeatView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import share_group_heartbeat
from penstock.kafkawire.api.share_group_heartbeat import (
    API as API,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.feature_levels import NO_SHARE_GROUPS, share_groups_error
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasSettings
from penstock_gateway.share.sessions import HasShareSessions
from penstock_gateway.share.starts import HasShareStarts

DEADLINE_S = 5.0  # the usual time between two heartbeats


class Needs(HasClock, HasKnownOutage, HasSequencer, HasSettings, HasShareSessions, HasShareStarts, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    error = share_groups_error(gateway)
    if error:
        return ShareGroupHeartbeatResponse(error_code=error, error_message=NO_SHARE_GROUPS)
    heartbeat = ShareHeartbeat(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=client.client_id,
        client_host=f"/{client.host}",
        topics=request.subscribed_topic_names,
        seen_sequence=client.seen_sequence,
        principal=client.principal,
    )
    try:
        outcome = await _outcome(gateway, client, heartbeat)
    except Unavailable as unavailable:
        return ShareGroupHeartbeatResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(unavailable))
    if isinstance(outcome, Rejected):
        return ShareGroupHeartbeatResponse(error_code=_error(outcome), error_message=outcome.message or None)
    assert isinstance(outcome, ShareMembership), f"unexpected outcome of a heartbeat: {outcome}"
    if request.member_epoch == LEAVE_EPOCH:
        gateway.share_sessions.end(client, request.group_id, request.member_id)
    return _response(outcome)


async def _outcome(gateway: Needs, client: Client, heartbeat: ShareHeartbeat) -> Outcome:
    view = await _preview(gateway, heartbeat, fresh=False)
    if isinstance(view.outcome, Rejected):  # the replica may be behind, and not know the member yet
        view = await _preview(gateway, heartbeat, fresh=True)
    if view.outcome is not None:
        return view.outcome
    if view.begins:  # so the cluster has reached SHARE_STARTS_LEVEL
        starts = await gateway.share_starts.find(view.timestamp, view.begins)
        heartbeat = msgspec.structs.replace(heartbeat, starts=starts)
    return await group_command(gateway, client, heartbeat)


async def _preview(gateway: Needs, heartbeat: ShareHeartbeat, *, fresh: bool) -> ShareHeartbeatView:
    """The answer without a journal entry; its outcome is None if the heartbeat must be journaled."""
    query = ShareHeartbeatQuery(0, heartbeat, fresh=fresh)
    return await gateway.sequencer.query("share_heartbeat", query, ShareHeartbeatView, deadline_s=DEADLINE_S)


def _error(rejected: Rejected) -> ErrorCode:
    """Kafka's code. An overload is retriable here, because clients treat an unknown error as final."""
    return GROUPS_UNAVAILABLE if rejected.rejection == Rejection.OVERLOADED else error_of(rejected.rejection)


def _response(membership: ShareMembership) -> ShareGroupHeartbeatResponse:
    assignment = membership.assignment
    return ShareGroupHeartbeatResponse(
        member_id=membership.member_id,
        member_epoch=membership.member_epoch,
        heartbeat_interval_ms=membership.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else share_group_heartbeat.Assignment(
            [share_group_heartbeat.TopicPartitions(each.topic_id, each.partitions) for each in assignment]
        ),
    )
