"""Heartbeat: stay a member of a classic consumer group."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String, since


class HeartbeatRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None


class HeartbeatResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


API = Api(
    key=12,
    name="Heartbeat",
    min_version=0,
    max_version=4,
    flexible_since=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)
