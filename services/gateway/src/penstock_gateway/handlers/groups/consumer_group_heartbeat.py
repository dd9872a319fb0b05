"""ConsumerGroupHeartbeat: all that a member of a consumer group says to its coordinator (KIP-848).

Most heartbeats change nothing, and are answered by a query; only the others are journaled. A replica that is behind
could refuse a member of which it has not heard, so a refusal counts when the journal's present state says the same.
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
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasEntropy, HasSequencer

DEADLINE_S = 5.0  # the usual time between two heartbeats
MEMBER_ENTROPY_BYTES = 16
FIRST_VERSION_OWN_MEMBER_ID = 1  # KIP-1082


class Needs(HasClock, HasEntropy, HasSequencer, Protocol):
    """What this module uses of the gateway."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    heartbeat = _heartbeat(gateway, client, version, request)
    try:
        outcome = await _outcome(gateway, heartbeat)
    except Unavailable as error:
        return ConsumerGroupHeartbeatResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(error))
    if isinstance(outcome, Rejected):
        return ConsumerGroupHeartbeatResponse(error_code=_error(outcome), error_message=outcome.message or None)
    assert isinstance(outcome, ConsumerMembership), f"an unexpected answer to a heartbeat: {outcome}"
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
        seen_sequence=gateway.sequencer.seen_sequence,
    )


async def _outcome(gateway: Needs, heartbeat: ConsumerHeartbeat) -> Outcome:
    answer = await _preview(gateway, heartbeat, fresh=False)
    if isinstance(answer, Rejected):
        answer = await _preview(gateway, heartbeat, fresh=True)
    return await group_command(gateway, heartbeat) if answer is None else answer


async def _preview(
    gateway: Needs, heartbeat: ConsumerHeartbeat, *, fresh: bool
) -> ConsumerMembership | Rejected | None:
    """What is answered without a journal entry; None if there is to be one."""
    query = ConsumerHeartbeatQuery(0, heartbeat, fresh=fresh)
    view = await gateway.sequencer.query("consumer_heartbeat", query, ConsumerHeartbeatView, deadline_s=DEADLINE_S)
    return view.outcome


def _error(rejected: Rejected) -> ErrorCode:
    """Without room a member tries again; clients take an error that they do not know here as final."""
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
