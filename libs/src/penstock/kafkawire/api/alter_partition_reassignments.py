"""AlterPartitionReassignments: move partitions to other brokers (KIP-455)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int16, Int32, String, since


class ReassignablePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    # Null: cancel the ongoing reassignment.
    replicas: list[Int32] | None = None


class ReassignableTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(msgspec.Struct, frozen=True, gc=False):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReassignableTopicResponse(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: list[ReassignableTopicResponse] = []


API = Api(
    key=45,
    name="AlterPartitionReassignments",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
)
