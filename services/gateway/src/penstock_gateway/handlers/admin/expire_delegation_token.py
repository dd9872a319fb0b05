"""ExpireDelegationToken: ends a token now or at a given time, for its owner or a renewer (KIP-48)."""

from typing import Protocol

from penstock.contracts.commands import ExpireToken, TokenExpiry
from penstock.kafkawire.api.expire_delegation_token import (
    API as API,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import result_of
from penstock_gateway.security.delegation.delegation_tokens import HasTokens, may_ask
from penstock_gateway.security.security_changes import change_token


class Needs(HasClock, HasSequencer, HasTokens, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    tokens = gateway.delegation_tokens
    if not may_ask(client):
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
    if not tokens:
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if not await tokens.cache.refresh():
        return ExpireDelegationTokenResponse(ADMINISTRATION_UNAVAILABLE)
    token_id, lifetime_ms = tokens.cache.id_of(request.hmac), request.expiry_time_period_ms
    if not token_id:
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    outcome = await change_token(
        gateway, lambda now_ms, seen: ExpireToken(now_ms, token_id, client.user, lifetime_ms, seen)
    )
    if isinstance(outcome, TokenExpiry):
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=outcome.expiry_ms)
    return ExpireDelegationTokenResponse(result_of(outcome)[0])
