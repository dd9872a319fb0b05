"""ExpireDelegationToken: end a delegation token now or at a given time (KIP-48)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenRequest(msgspec.Struct, frozen=True, gc=False):
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


API = Api(
    key=40,
    name="ExpireDelegationToken",
    min_version=1,
    max_version=2,
    flexible_since=2,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
)
