"""AddOffsetsToTxn: add a group to a transaction that is to commit offsets of it (KIP-98)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


API = Api(
    key=25,
    name="AddOffsetsToTxn",
    min_version=0,
    max_version=4,
    flexible_since=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)
