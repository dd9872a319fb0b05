"""WriteTxnMarkers: end transactions in some partitions (KIP-98), for administrators to abort them (KIP-664)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, Int64, String, since


class WritableTxnMarkerTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(msgspec.Struct, frozen=True, gc=False):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False  # true: committed
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    # 2 if each transaction has its own epoch (KIP-890, KIP-1228).
    transaction_version: Annotated[Int8, since(2)] = 0


class WriteTxnMarkersRequest(msgspec.Struct, frozen=True, gc=False):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(msgspec.Struct, frozen=True, gc=False):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(msgspec.Struct, frozen=True, gc=False):
    markers: list[WritableTxnMarkerResult] = []


API = Api(
    key=27,
    name="WriteTxnMarkers",
    min_version=1,
    max_version=2,
    flexible_since=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
)
