"""ConsumerGroupDescribe: consumer groups with their members, assignments and targets (KIP-848)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int8, Int16, Int32, String, Uuid, since


class ConsumerGroupDescribeRequest(msgspec.Struct, frozen=True, gc=False):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False


class TopicPartitions(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: list[Int32] = []


class Assignment(msgspec.Struct, frozen=True, gc=False):
    topic_partitions: list[TopicPartitions] = []


class Member(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: String | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    # The member's protocol (KIP-1099): -1 unknown, 0 classic, 1 consumer.
    member_type: Annotated[Int8, since(1)] = -1


class DescribedGroup(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


API = Api(
    key=69,
    name="ConsumerGroupDescribe",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
