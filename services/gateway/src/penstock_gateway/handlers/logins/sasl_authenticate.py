"""SaslAuthenticate: takes the tokens of a login, and answers them (KIP-152); failures are answered after a delay."""

from penstock.kafkawire.api.sasl_authenticate import API as API, SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.login.logins import HasLogins


async def handle(
    gateway: HasLogins, client: Client, version: int, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return await gateway.logins.authenticate(client, request.auth_bytes)
