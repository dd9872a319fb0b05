"""Metadata: the brokers, the topics, and the leader of each partition."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int16, Int32, String, Uuid, nullable, since, versions


class MetadataRequestTopic(msgspec.Struct, frozen=True, gc=False):
    # From version 10 on an id may replace the name; clients use that from version 12 on (KIP-516).
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    name: Annotated[String | None, nullable(10)] = ""


class MetadataRequest(msgspec.Struct, frozen=True, gc=False):
    # All topics: an empty list in version 0, null later. From version 1 on an empty list means no topics (KIP-4).
    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = []
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(msgspec.Struct, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, since(1)] = None


class MetadataResponsePartition(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], since(5)] = []


class MetadataResponseTopic(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    name: Annotated[String | None, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[String | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, versions(8, 10)] = -2147483648
    # REBOOTSTRAP_REQUIRED sends the client back to its bootstrap servers (KIP-1102); Penstock never sets it.
    error_code: Annotated[Int16, since(13)] = 0


API = Api(
    key=3,
    name="Metadata",
    min_version=0,
    max_version=13,
    flexible_since=9,
    request=MetadataRequest,
    response=MetadataResponse,
)
