"""ListTransactions: the transactional ids of the cluster (KIP-664)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String, since


class ListTransactionsRequest(msgspec.Struct, frozen=True, gc=False):
    state_filters: list[String] = []
    producer_id_filters: list[Int64] = []
    # Only transactions that are ongoing for longer than this, in ms; -1: all (KIP-994).
    duration_filter: Annotated[Int64, since(1)] = -1
    # A regular expression for the whole transactional id; null or empty: all (KIP-1152).
    transactional_id_pattern: Annotated[String | None, since(2)] = None


class TransactionState(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []


API = Api(
    key=66,
    name="ListTransactions",
    min_version=0,
    max_version=2,
    flexible_since=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)
