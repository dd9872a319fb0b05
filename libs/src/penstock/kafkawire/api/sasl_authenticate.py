"""SaslAuthenticate: carries one token of a login from the client, and the server's answer to it (KIP-152)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bytes, Int16, Int64, String, since


class SaslAuthenticateRequest(msgspec.Struct, frozen=True, gc=False):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = b""
    # After this time the client must have logged in again on this connection (KIP-368); 0: never.
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


API = Api(
    key=36,
    name="SaslAuthenticate",
    min_version=0,
    max_version=2,
    flexible_since=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)
