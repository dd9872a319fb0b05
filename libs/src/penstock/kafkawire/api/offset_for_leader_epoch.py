"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which a client detects lost records (KIP-320)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String, since


class OffsetForLeaderPartition(msgspec.Struct, frozen=True, gc=False):
    partition: Int32 = 0
    # The leader epoch that the client knows, for fencing.
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(msgspec.Struct, frozen=True, gc=False):
    replica_id: Annotated[Int32, since(3)] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    min_version=2,
    max_version=4,
    flexible_since=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
