"""Heartbeat: keeps a member of a classic group alive, and reports whether a rebalance is in progress.

While no sequencer answers, a member that one confirmed lately gets success: it must not leave because of an outage.
"""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import HeartbeatQuery, HeartbeatView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.heartbeat import API as API, HeartbeatRequest, HeartbeatResponse
from penstock_gateway.coordination.heartbeat_leases import HasHeartbeatLeases
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer

DEADLINE_S = 3.0  # the usual time between two heartbeats


class Needs(HasClock, HasHeartbeatLeases, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: HeartbeatRequest) -> HeartbeatResponse:
    query = HeartbeatQuery(0, request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    leases = gateway.heartbeat_leases
    try:
        deadline_s = gateway.known_outage.deadline_s(DEADLINE_S, gateway.clock.monotonic_s())
        view = await gateway.sequencer.query("heartbeat", query, HeartbeatView, deadline_s=deadline_s)
    except Unavailable:
        gateway.known_outage.record_failure(gateway.clock.monotonic_s())
        if leases.holds(query, gateway.clock.monotonic_s()):
            return HeartbeatResponse()
        return HeartbeatResponse(error_code=GROUPS_UNAVAILABLE)
    gateway.known_outage.record_answer()
    if view.rejection is Rejection.NONE:
        leases.confirm(query, gateway.clock.monotonic_s())
    else:
        leases.remove(query)
    return HeartbeatResponse(error_code=error_of(view.rejection))
