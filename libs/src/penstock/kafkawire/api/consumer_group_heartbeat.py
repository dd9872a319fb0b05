"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, reports its partitions, or leaves (KIP-848)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, String, Uuid, since


class TopicPartitions(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    # From version 1 on the member makes its own id (KIP-1082).
    member_id: String = ""
    # 0: the member joins; -1: it leaves; -2: a static member leaves for a while.
    member_epoch: Int32 = 0
    # In these fields null, or -1 as a time-out, means unchanged.
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: Annotated[String | None, since(1)] = None
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(msgspec.Struct, frozen=True, gc=False):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    # Null: unchanged since the last response with an assignment.
    assignment: Assignment | None = None


API = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)
