"""Produce: append record batches to partitions; in each partition all batches are appended, or none."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import (
    NO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    since,
    tagged,
    versions,
)


class PartitionProduceData(msgspec.Struct, frozen=True, gc=False):
    index: Int32 = 0
    records: Records = None


class TopicProduceData(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(0, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID  # KIP-516
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(msgspec.Struct, frozen=True, gc=False):
    transactional_id: Annotated[String | None, since(3)] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(msgspec.Struct, frozen=True, gc=False):
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(msgspec.Struct, frozen=True, gc=False):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(msgspec.Struct, frozen=True, gc=False):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, since(2)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    # The invalid records of the batch, if only some are invalid (KIP-467).
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8)] = []
    error_message: Annotated[String | None, since(8)] = None
    # The current leader, if it is not the broker that got the request (KIP-951).
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0), since(10)] = LeaderIdAndEpoch()


class TopicProduceResponse(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(0, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(msgspec.Struct, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ProduceResponse(msgspec.Struct, frozen=True, gc=False):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    # The addresses of the leaders named above (KIP-951).
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0), since(10)] = []


# Versions 0 to 2 are offered, although their batch formats are rejected. If the range began at version 3, older
# librdkafka would silently send gzip, snappy and lz4 uncompressed.
API = Api(
    key=0,
    name="Produce",
    min_version=0,
    max_version=13,
    flexible_since=9,
    request=ProduceRequest,
    response=ProduceResponse,
)
