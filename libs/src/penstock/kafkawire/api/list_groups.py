"""ListGroups: the groups of the cluster."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String, since


class ListGroupsRequest(msgspec.Struct, frozen=True, gc=False):
    # Only groups in these states; empty: all (KIP-518).
    states_filter: Annotated[list[String], since(4)] = []
    # Only groups of these types; empty: all (KIP-848).
    types_filter: Annotated[list[String], since(5)] = []


class ListedGroup(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, since(4)] = ""
    group_type: Annotated[String, since(5)] = ""


class ListGroupsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


API = Api(
    key=16,
    name="ListGroups",
    min_version=0,
    max_version=5,
    flexible_since=3,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
)
