"""ConsumerGroupHeartbeat: lets a member of a consumer group join, stay, change its subscription, and leave (KIP-848).

Most heartbeats change nothing, and a query answers them; only the others are journaled. A replica that is behind could
reject a member that it does not know yet. So a rejection counts only if a fresh query confirms it.
"""

import base64
from typing import Protocol

from penstock.contracts.commands import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerMembership,
    Outcome,
    Rejected,
    TopicPartitions,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.consumer_groups import ConsumerHeartbeatQuery, ConsumerHeartbeatView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import consumer_group_heartbeat
from penstock.kafkawire.api.consumer_group_heartbeat import (
    API as API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasEntropy, HasSequencer

DEADLINE_S = 5.0  # the usual time between two heartbeats
MEMBER_ENTROPY_BYTES = 16
FIRST_VERSION_OWN_MEMBER_ID = 1  # KIP-1082


class Needs(HasClock, HasEntropy, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    heartbeat = _heartbeat(gateway, client, version, request)
    try:
        outcome = await _outcome(gateway, client, heartbeat)
    except Unavailable as error:
        return ConsumerGroupHeartbeatResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(error))
    if isinstance(outcome, Rejected):
        return ConsumerGroupHeartbeatResponse(error_code=_error(outcome), error_message=outcome.message or None)
    assert isinstance(outcome, ConsumerMembership), f"unexpected outcome of a heartbeat: {outcome}"
    return _response(outcome)


def _heartbeat(
    gateway: Needs, client: Client, version: int, request: ConsumerGroupHeartbeatRequest
) -> ConsumerHeartbeat:
    member_id = request.member_id
    if not member_id and version < FIRST_VERSION_OWN_MEMBER_ID and request.member_epoch == JOIN_EPOCH:
        member_id = base64.urlsafe_b64encode(gateway.entropy.take(MEMBER_ENTROPY_BYTES)).decode().rstrip("=")
    owned = request.topic_partitions
    return ConsumerHeartbeat(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        client_id=client.client_id,
        client_host=f"/{client.host}",
        topics=request.subscribed_topic_names,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else [TopicPartitions(each.topic_id, sorted(each.partitions)) for each in owned],
        seen_sequence=client.seen_sequence,
        principal=client.principal,
    )


async def _outcome(gateway: Needs, client: Client, heartbeat: ConsumerHeartbeat) -> Outcome:
    answer = await _preview(gateway, heartbeat, fresh=False)
    if isinstance(answer, Rejected):
        answer = await _preview(gateway, heartbeat, fresh=True)
    return await group_command(gateway, client, heartbeat) if answer is None else answer


async def _preview(
    gateway: Needs, heartbeat: ConsumerHeartbeat, *, fresh: bool
) -> ConsumerMembership | Rejected | None:
    """The answer without a journal entry; None if the heartbeat must be journaled."""
    query = ConsumerHeartbeatQuery(0, heartbeat, fresh=fresh)
    view = await gateway.sequencer.query("consumer_heartbeat", query, ConsumerHeartbeatView, deadline_s=DEADLINE_S)
    return view.outcome


def _error(rejected: Rejected) -> ErrorCode:
    """Kafka's code. An overload is retriable here, because clients treat an unknown error as final."""
    return GROUPS_UNAVAILABLE if rejected.rejection == Rejection.OVERLOADED else error_of(rejected.rejection)


def _response(membership: ConsumerMembership) -> ConsumerGroupHeartbeatResponse:
    assignment = membership.assignment
    return ConsumerGroupHeartbeatResponse(
        member_id=membership.member_id,
        member_epoch=membership.member_epoch,
        heartbeat_interval_ms=membership.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else consumer_group_heartbeat.Assignment(
            [consumer_group_heartbeat.TopicPartitions(each.topic_id, each.partitions) for each in assignment]
        ),
    )
