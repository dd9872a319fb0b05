"""AlterUserScramCredentials: set and delete the SCRAM passwords of users (KIP-554)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int8, Int16, Int32, String


class ScramCredentialDeletion(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(msgspec.Struct, frozen=True, gc=False):
    """A new password; the client hashes it with the salt, and sends no other form of it."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(msgspec.Struct, frozen=True, gc=False):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(msgspec.Struct, frozen=True, gc=False):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []


API = Api(
    key=51,
    name="AlterUserScramCredentials",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
)
