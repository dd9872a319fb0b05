"""ShareGroupHeartbeat: a member of a share group joins, stays, or leaves (KIP-932)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, String, Uuid


class TopicPartitions(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ShareGroupHeartbeatRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    # The member makes its own id.
    member_id: String = ""
    # 0: the member joins; -1: it leaves.
    member_epoch: Int32 = 0
    # In both fields null means unchanged.
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None


class Assignment(msgspec.Struct, frozen=True, gc=False):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    # Null: unchanged since the last response with an assignment.
    assignment: Assignment | None = None


API = Api(
    key=76,
    name="ShareGroupHeartbeat",
    min_version=1,
    max_version=1,
    flexible_since=0,
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
    share_groups_only=True,
)
