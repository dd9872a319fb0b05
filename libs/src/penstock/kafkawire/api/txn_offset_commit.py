"""TxnOffsetCommit: commit offsets of a consumer group as part of a transaction (KIP-98)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, Int64, String, Uuid, since, versions


class TxnOffsetCommitRequestPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(0, 5)] = ""
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    # The committing member, so that the broker can fence a replaced member (KIP-447).
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[String, since(3)] = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String, versions(0, 5)] = ""
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


API = Api(
    key=28,
    name="TxnOffsetCommit",
    min_version=0,
    max_version=6,
    flexible_since=3,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)
