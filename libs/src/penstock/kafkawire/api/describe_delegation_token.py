"""DescribeDelegationToken: the delegation tokens that a client may see, with their passwords (KIP-48, KIP-373)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int16, Int32, Int64, String, since


class DescribeDelegationTokenOwner(msgspec.Struct, frozen=True, gc=False):
    principal_type: String = ""
    principal_name: String = ""


class DescribeDelegationTokenRequest(msgspec.Struct, frozen=True, gc=False):
    # Null: the tokens of all owners.
    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribedDelegationTokenRenewer(msgspec.Struct, frozen=True, gc=False):
    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(msgspec.Struct, frozen=True, gc=False):
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, since(3)] = ""
    token_requester_principal_name: Annotated[String, since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribeDelegationTokenResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0


API = Api(
    key=41,
    name="DescribeDelegationToken",
    min_version=1,
    max_version=3,
    flexible_since=2,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
)
