"""DeleteRecords: delete the records of partitions before an offset (KIP-107)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String


class DeleteRecordsPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    # -1: the high watermark, so all records.
    offset: Int64 = 0


class DeleteRecordsTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(msgspec.Struct, frozen=True, gc=False):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


API = Api(
    key=21,
    name="DeleteRecords",
    min_version=0,
    max_version=2,
    flexible_since=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)
