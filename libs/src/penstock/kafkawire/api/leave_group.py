"""LeaveGroup: members leave a classic consumer group."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String, since, versions


class MemberIdentity(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, since(5)] = None


class LeaveGroupRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    member_id: Annotated[String, versions(0, 2)] = ""
    # One member up to version 2, several from version 3 on (KIP-345).
    members: Annotated[list[MemberIdentity], since(3)] = []


class MemberResponse(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = []


API = Api(
    key=13,
    name="LeaveGroup",
    min_version=0,
    max_version=5,
    flexible_since=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)
