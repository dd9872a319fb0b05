"""OffsetFetch: the committed offsets of consumer groups."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int16, Int32, Int64, String, Uuid, nullable, since, versions


class OffsetFetchRequestTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(8, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID  # KIP-848
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    member_id: Annotated[String | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(msgspec.Struct, frozen=True, gc=False):
    # One group up to version 7, several from version 8 on (KIP-709). Null topics: all committed offsets of the group.
    group_id: Annotated[String, versions(0, 7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, versions(0, 7), nullable(2)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    # Whether to reject offsets that an ongoing transaction may change, so that the client retries (KIP-447).
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(8, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID  # KIP-848
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], versions(0, 7)] = []
    error_code: Annotated[Int16, versions(2, 7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []


API = Api(
    key=9,
    name="OffsetFetch",
    min_version=1,
    max_version=10,
    flexible_since=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)
