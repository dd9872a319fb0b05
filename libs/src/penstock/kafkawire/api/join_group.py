"""JoinGroup: become a member of a classic consumer group, in its next generation."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Bytes, Int16, Int32, String, nullable, since


class JoinGroupRequestProtocol(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: String = ""
    # A static member keeps its place after a restart (KIP-345).
    group_instance_id: Annotated[String | None, since(5)] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[String | None, since(8)] = None


class JoinGroupResponseMember(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7)] = None
    protocol_name: Annotated[String | None, nullable(7)] = ""
    leader: String = ""
    # A leader that rejoins can keep the assignment (KIP-814).
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []


API = Api(
    key=11,
    name="JoinGroup",
    min_version=0,
    max_version=9,
    flexible_since=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)
