"""DescribeTopicPartitions: topics with their partitions, page by page (KIP-966)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int16, Int32, String, Uuid


class TopicRequest(msgspec.Struct, frozen=True, gc=False):
    name: String = ""


class Cursor(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(msgspec.Struct, frozen=True, gc=False):
    # Empty: all topics.
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    # The first partition of this page: `next_cursor` of the previous response.
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    # The Java client does not accept null for these two.
    eligible_leader_replicas: list[Int32] | None = []
    last_known_elr: list[Int32] | None = []
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    # The first partition after this response, for the next request; null at the end.
    next_cursor: Cursor | None = None


API = Api(
    key=75,
    name="DescribeTopicPartitions",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
