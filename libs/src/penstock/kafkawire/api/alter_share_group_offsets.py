"""AlterShareGroupOffsets: set the start offsets of a share group without members (KIP-932)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, Int64, String, Uuid


class AlterShareGroupOffsetsRequestPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsResponsePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class AlterShareGroupOffsetsResponseTopic(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


API = Api(
    key=91,
    name="AlterShareGroupOffsets",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
    share_groups_only=True,
)
