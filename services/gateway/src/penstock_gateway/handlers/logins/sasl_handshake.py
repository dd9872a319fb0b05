"""SaslHandshake: chooses the mechanism of a login (KIP-43), and of the next one on a session with an end (KIP-368)."""

from penstock.kafkawire.api.sasl_handshake import API as API, SaslHandshakeRequest, SaslHandshakeResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.login.logins import HasLogins


async def handle(
    gateway: HasLogins, client: Client, version: int, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return gateway.logins.handshake(client, version, request.mechanism)
