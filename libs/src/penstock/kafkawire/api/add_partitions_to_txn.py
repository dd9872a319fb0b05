"""AddPartitionsToTxn: add partitions to a transaction that is to write to them (KIP-98)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int16, Int32, Int64, String, since, versions


class AddPartitionsToTxnTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnRequest(msgspec.Struct, frozen=True, gc=False):
    # Only brokers send several transactions in one request (KIP-890); clients use versions up to 3.
    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4)] = []
    v3_and_below_transactional_id: Annotated[String, versions(0, 3)] = ""
    v3_and_below_producer_id: Annotated[Int64, versions(0, 3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, versions(0, 3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], versions(0, 3)] = []


class AddPartitionsToTxnPartitionResult(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], versions(0, 3)] = []


API = Api(
    key=24,
    name="AddPartitionsToTxn",
    min_version=0,
    max_version=5,
    flexible_since=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)
