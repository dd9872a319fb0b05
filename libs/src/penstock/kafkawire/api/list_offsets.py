"""ListOffsets: the earliest or latest offset of partitions, or the first one at or after a timestamp."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, Int64, String, since


class ListOffsetsPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    # Milliseconds since 1970, or a special value:
    # -1: the latest offset; -2: the earliest offset.
    # -3 from version 7 on: the record with the highest timestamp (KIP-734).
    # -4 from version 8 on: the earliest offset that is not only in the second tier (KIP-405).
    # -5 from version 9 on: the latest offset in the second tier (KIP-1005).
    # -6 from version 11 on: the earliest offset that is to be copied to the second tier (KIP-1023).
    timestamp: Int64 = 0


class ListOffsetsTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(msgspec.Struct, frozen=True, gc=False):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    # For lookups in the second tier (KIP-1075).
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
