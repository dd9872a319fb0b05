"""OffsetDelete: delete a group's committed offsets of topics that it does not read (KIP-496)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String


class OffsetDeleteRequestPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


API = Api(
    key=47,
    name="OffsetDelete",
    min_version=0,
    max_version=0,
    flexible_since=1,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
