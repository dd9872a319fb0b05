"""InitProducerId: a producer id and epoch for idempotent and transactional producers."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, Int64, String, since


class InitProducerIdRequest(msgspec.Struct, frozen=True, gc=False):
    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    # A producer that sends its id keeps it and gets the next epoch (KIP-360).
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


class InitProducerIdResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


API = Api(
    key=22,
    name="InitProducerId",
    min_version=0,
    max_version=5,
    flexible_since=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
