"""DescribeQuorum: the replicas of the cluster's metadata, and how far each of them is (KIP-595, KIP-853)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, Int64, String, Uint16, Uuid, since


class PartitionRequest(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0


class TopicRequest(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partitions: list[PartitionRequest] = []


class DescribeQuorumRequest(msgspec.Struct, frozen=True, gc=False):
    topics: list[TopicRequest] = []


class ReplicaState(msgspec.Struct, frozen=True, gc=False):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(2)] = NO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, since(1)] = -1  # KIP-836
    last_caught_up_timestamp: Annotated[Int64, since(1)] = -1


class PartitionData(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2)] = None
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class TopicData(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partitions: list[PartitionData] = []


class Listener(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class Node(msgspec.Struct, frozen=True, gc=False):
    node_id: Int32 = 0
    listeners: list[Listener] = []


class DescribeQuorumResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2)] = None
    topics: list[TopicData] = []
    nodes: Annotated[list[Node], since(2)] = []


API = Api(
    key=55,
    name="DescribeQuorum",
    min_version=0,
    max_version=2,
    flexible_since=0,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
)
