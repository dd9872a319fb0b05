"""ListOffsets: the earliest, latest or first-after-a-time offset of partitions."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, Int64, String, since


class ListOffsetsPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    # Milliseconds since 1970, or -1 for the latest, -2 for the earliest offset, from 7 on -3 for the record with the
    # highest timestamp (KIP-734), from 8 on -4 for the earliest that is not in a second tier alone (KIP-405), from 9 on
    # -5 for the latest that is in one (KIP-1005), from 11 on -6 for the earliest that is to come into one (KIP-1023).
    timestamp: Int64 = 0


class ListOffsetsTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(msgspec.Struct, frozen=True, gc=False):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    # For what has to be looked up in the second tier (KIP-1075).
    timeout_ms: Annotated[Int32, since(10)] = 0


class ListOffsetsPartitionResponse(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsTopicResponse(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsTopicResponse] = []


API = Api(
    key=2,
    name="ListOffsets",
    min_version=1,
    max_version=11,
    flexible_since=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)
