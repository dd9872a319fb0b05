"""DescribeTransactions: transactions by their transactional ids (KIP-664)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String


class DescribeTransactionsRequest(msgspec.Struct, frozen=True, gc=False):
    transactional_ids: list[String] = []


class TopicData(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partitions: list[Int32] = []


class TransactionState(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class DescribeTransactionsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []


API = Api(
    key=65,
    name="DescribeTransactions",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)
