"""DescribeShareGroupOffsets: the start offsets and the lag of share groups (KIP-932)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, Int64, String, Uuid, since


class DescribeShareGroupOffsetsRequestTopic(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsRequestGroup(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    # Null: all topics of the group.
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequest(msgspec.Struct, frozen=True, gc=False):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsResponsePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, since(1)] = -1  # KIP-1226
    error_code: Int16 = 0
    error_message: String | None = None


class DescribeShareGroupOffsetsResponseTopic(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponseGroup(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: String | None = None


class DescribeShareGroupOffsetsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


API = Api(
    key=90,
    name="DescribeShareGroupOffsets",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
    share_groups_only=True,
)
