"""DescribeTopicPartitions: topics with their partitions, a part at a time (KIP-966)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int16, Int32, String, Uuid


class TopicRequest(msgspec.Struct, frozen=True, gc=False):
    name: String = ""


class Cursor(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(msgspec.Struct, frozen=True, gc=False):
    # None is all topics.
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    # Where to go on: what the answer before said.
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    # The Java client cannot take null for these two.
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
    # The first partition that is not in the answer, for the request after this; null if that was all.
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
