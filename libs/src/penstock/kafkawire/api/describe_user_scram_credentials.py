"""DescribeUserScramCredentials: the kinds of SCRAM passwords that users have (KIP-554)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String


class UserName(msgspec.Struct, frozen=True, gc=False):
    name: String = ""


class DescribeUserScramCredentialsRequest(msgspec.Struct, frozen=True, gc=False):
    # Null or empty: all users.
    users: list[UserName] | None = []


class CredentialInfo(msgspec.Struct, frozen=True, gc=False):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(msgspec.Struct, frozen=True, gc=False):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


API = Api(
    key=50,
    name="DescribeUserScramCredentials",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
)
