"""ElectLeaders: make the preferred replica the leader, or any live one (KIP-460)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String, since


class TopicPartitions(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(msgspec.Struct, frozen=True, gc=False):
    election_type: Annotated[Int8, since(1)] = 0
    # Null: all partitions.
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(msgspec.Struct, frozen=True, gc=False):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = []


API = Api(
    key=43,
    name="ElectLeaders",
    min_version=0,
    max_version=2,
    flexible_since=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
)
