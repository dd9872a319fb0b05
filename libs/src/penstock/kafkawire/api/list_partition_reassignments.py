"""ListPartitionReassignments: the partitions that are being moved to other brokers (KIP-455)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String


class ListPartitionReassignmentsTopics(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(msgspec.Struct, frozen=True, gc=False):
    timeout_ms: Int32 = 60000
    # Null: all partitions.
    topics: list[ListPartitionReassignmentsTopics] | None = []


class OngoingPartitionReassignment(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: list[OngoingTopicReassignment] = []


API = Api(
    key=46,
    name="ListPartitionReassignments",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
