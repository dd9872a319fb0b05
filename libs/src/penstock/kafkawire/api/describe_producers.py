"""DescribeProducers: the idempotent producers of partitions (KIP-664)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String


class TopicRequest(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(msgspec.Struct, frozen=True, gc=False):
    topics: list[TopicRequest] = []


class ProducerState(msgspec.Struct, frozen=True, gc=False):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []


API = Api(
    key=61,
    name="DescribeProducers",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
)
