"""RenewDelegationToken: move the expiry of a delegation token further away (KIP-48)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int16, Int32, Int64


class RenewDelegationTokenRequest(msgspec.Struct, frozen=True, gc=False):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


API = Api(
    key=39,
    name="RenewDelegationToken",
    min_version=1,
    max_version=2,
    flexible_since=2,
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
)
