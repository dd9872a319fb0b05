"""Heartbeat: keeps a member of a classic group alive, and reports whether a rebalance is in progress."""

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import HeartbeatQuery, HeartbeatView
from penstock.kafkawire.api.heartbeat import API as API, HeartbeatRequest, HeartbeatResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasSequencer

DEADLINE_S = 3.0  # the usual time between two heartbeats


async def handle(gateway: HasSequencer, client: Client, version: int, request: HeartbeatRequest) -> HeartbeatResponse:
    query = HeartbeatQuery(0, request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    try:
        view = await gateway.sequencer.query("heartbeat", query, HeartbeatView, deadline_s=DEADLINE_S)
    except Unavailable:
        return HeartbeatResponse(error_code=GROUPS_UNAVAILABLE)
    return HeartbeatResponse(error_code=error_of(view.rejection))
