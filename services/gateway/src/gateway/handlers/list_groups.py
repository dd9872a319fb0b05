"""ListGroups: every group, or those in the states asked for (KIP-518)."""

from gateway.context import Client, Gateway
from gateway.errors import GROUPS_UNAVAILABLE
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries import GroupsQuery, GroupsView
from penstock.kafkawire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(gateway: Gateway, client: Client, version: int, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        query = GroupsQuery(0, request.states_filter, fresh=True)
        view = await gateway.sequencer.query("groups", query, GroupsView)
    except Unavailable:
        return ListGroupsResponse(error_code=GROUPS_UNAVAILABLE)
    return ListGroupsResponse(
        groups=[ListedGroup(group.group_id, group.protocol_type, group.state) for group in view.groups]
    )
