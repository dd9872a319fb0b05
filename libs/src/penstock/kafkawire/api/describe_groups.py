"""DescribeGroups: state, members and assignments of classic groups."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Bytes, Int16, Int32, String, since


class DescribeGroupsRequest(msgspec.Struct, frozen=True, gc=False):
    groups: list[String] = []
    include_authorized_operations: Annotated[Bool, since(3)] = False


class DescribedGroupMember(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


class DescribeGroupsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribedGroup] = []


API = Api(
    key=15,
    name="DescribeGroups",
    min_version=0,
    max_version=6,
    flexible_since=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)
