"""CreateDelegationToken: a token with which its owner logs in for a while, without a password (KIP-48, KIP-373)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int16, Int32, Int64, String, since


class CreatableRenewers(msgspec.Struct, frozen=True, gc=False):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(msgspec.Struct, frozen=True, gc=False):
    # Null, or an empty name: the client itself.
    owner_principal_type: Annotated[String | None, since(3)] = ""
    owner_principal_name: Annotated[String | None, since(3)] = ""
    renewers: list[CreatableRenewers] = []
    # -1: the longest that the server allows.
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, since(3)] = ""
    token_requester_principal_name: Annotated[String, since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0


API = Api(
    key=38,
    name="CreateDelegationToken",
    min_version=1,
    max_version=3,
    flexible_since=2,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
)
