"""ListGroups: every group, or those in the states (KIP-518) and of the types (KIP-848) asked for."""

from gateway.context import Client, Gateway
from gateway.errors import GROUPS_UNAVAILABLE
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries import GroupsQuery, GroupsView
from penstock.kafkawire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"  # the one type of group there is
STATES = {state.lower(): state for state in ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")}


async def handle(gateway: Gateway, client: Client, version: int, request: ListGroupsRequest) -> ListGroupsResponse:
    if request.types_filter and CLASSIC not in map(str.lower, request.types_filter):
        return ListGroupsResponse()
    states = [
        STATES.get(state.lower(), state) for state in request.states_filter
    ]  # as in Kafka, in upper or lower case
    try:
        view = await gateway.sequencer.query("groups", GroupsQuery(0, states, fresh=True), GroupsView)
    except Unavailable:
        return ListGroupsResponse(error_code=GROUPS_UNAVAILABLE)
    return ListGroupsResponse(
        groups=[ListedGroup(group.group_id, group.protocol_type, group.state, CLASSIC) for group in view.groups]
    )
