"""EndTxn: commit or abort a transaction (KIP-98)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int16, Int32, Int64, String, since


class EndTxnRequest(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    # For the producer's next transaction: each transaction has its own epoch (KIP-890).
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1


API = Api(
    key=26,
    name="EndTxn",
    min_version=0,
    max_version=5,
    flexible_since=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
