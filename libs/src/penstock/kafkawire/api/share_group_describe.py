"""ShareGroupDescribe: share groups with their members and assignments (KIP-932)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int16, Int32, String, Uuid


class ShareGroupDescribeRequest(msgspec.Struct, frozen=True, gc=False):
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
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    assignment: Assignment = Assignment()


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


class ShareGroupDescribeResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


API = Api(
    key=77,
    name="ShareGroupDescribe",
    min_version=1,
    max_version=1,
    flexible_since=0,
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
    share_groups_only=True,
)
