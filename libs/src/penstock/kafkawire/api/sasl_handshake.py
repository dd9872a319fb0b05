"""SaslHandshake: chooses the SASL mechanism of a login (KIP-43)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, String


class SaslHandshakeRequest(msgspec.Struct, frozen=True, gc=False):
    mechanism: String = ""


class SaslHandshakeResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    mechanisms: list[String] = []  # those that the listener accepts


API = Api(
    key=17,
    name="SaslHandshake",
    # After version 0 the tokens of the mechanism follow in frames without a header (KIP-152).
    min_version=0,
    max_version=1,
    flexible_since=2,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
)
