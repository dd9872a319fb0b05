"""OffsetCommit: commit the offsets that a consumer group has reached."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, Int64, String, Uuid, since, versions


class OffsetCommitRequestPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(0, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID  # KIP-848
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(7)] = None
    retention_time_ms: Annotated[Int64, versions(2, 4)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(0, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID  # KIP-848
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = []


API = Api(
    key=8,
    name="OffsetCommit",
    min_version=2,
    max_version=10,
    flexible_since=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)
