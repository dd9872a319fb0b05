"""ListGroups: lists the groups that this gateway coordinates, filtered by state (KIP-518) and type (KIP-848).

Clients ask every broker, and put the answers together.
"""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import GroupSummary
from penstock.kafkawire.api.list_groups import API as API, ListedGroup, ListGroupsRequest, ListGroupsResponse
from penstock.runtime.bus.listings import all_groups
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes, HasSequencer
from penstock_gateway.metadata.cluster_view import listed_here

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
TYPES = (CLASSIC, CONSUMER, SHARE, STREAMS)
STATES = {
    state.lower(): state
    for state in (
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "NotReady",
        "Assigning",
        "Reconciling",
        "Stable",
        "Dead",
    )
}


class Needs(HasClock, HasDirectory, HasNodes, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: ListGroupsRequest) -> ListGroupsResponse:
    types = [each.lower() for each in request.types_filter] or TYPES
    if not any(each in TYPES for each in types):
        return ListGroupsResponse()
    # As in Kafka, a filter may be in upper or lower case.
    states = [STATES.get(state.lower(), state) for state in request.states_filter]
    try:
        groups = await all_groups(gateway.sequencer, states)
    except Unavailable:
        return ListGroupsResponse(error_code=GROUPS_UNAVAILABLE)
    is_listed = listed_here(gateway, client)
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state, _type(group))
            async for group in Slices().of(groups)
            if _type(group) in types and is_listed(group.group_id)
        ]
    )


def _type(group: GroupSummary) -> str:
    if group.is_share:
        return SHARE
    if group.is_streams:
        return STREAMS
    return CONSUMER if group.is_consumer else CLASSIC
