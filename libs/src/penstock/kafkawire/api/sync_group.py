"""SyncGroup: the leader sends the assignments, and each member gets its own."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int16, Int32, String, since


class SyncGroupRequestAssignment(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    # The broker compares these with the group's protocol (KIP-559).
    protocol_type: Annotated[String | None, since(5)] = None
    protocol_name: Annotated[String | None, since(5)] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5)] = None
    protocol_name: Annotated[String | None, since(5)] = None
    assignment: Bytes = b""


API = Api(
    key=14,
    name="SyncGroup",
    min_version=0,
    max_version=5,
    flexible_since=4,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
)
