"""CreateDelegationToken: a token with which its owner logs in for a while, without a password (KIP-48, KIP-373)."""

from typing import Protocol

import msgspec

from penstock.contracts.acls import USER_TYPE
from penstock.contracts.commands import CreateToken, DelegationToken, TokenCreated
from penstock.contracts.security_rules import renewers_validation_error, user_validation_error
from penstock.kafkawire.api.create_delegation_token import (
    API as API,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import result_of
from penstock_gateway.security.delegation.delegation_tokens import HasTokens, may_ask
from penstock_gateway.security.security_changes import change_token

# The errors that a broker of Kafka finds, before it asks a controller.
_OF_BROKERS = (
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRINCIPAL_TYPE,
)


class Needs(HasClock, HasSequencer, HasTokens, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    error = _request_error(gateway, client, request)
    if error:
        return error_answer(client, request, error)
    tokens = gateway.delegation_tokens
    token_id, (_, owner) = tokens.new_id(), owner_of(client, request)
    renewers = tuple(dict.fromkeys(each.principal_name for each in request.renewers))
    lifetimes = tokens.lifetime_ms(0), tokens.max_lifetime_ms(request.max_lifetime_ms)
    outcome = await change_token(
        gateway,
        lambda now_ms, seen: CreateToken(
            now_ms, token_id, tokens.keys.newest_id, owner, client.user, renewers, *lifetimes
        ),
    )
    if isinstance(outcome, TokenCreated):
        return _created(gateway, client, request, outcome.token)
    return error_answer(client, request, result_of(outcome)[0])


def owner_of(client: Client, request: CreateDelegationTokenRequest) -> tuple[str, str]:
    """The type and the name of the token's owner: the client itself, if the request names none."""
    if request.owner_principal_name:
        return request.owner_principal_type or "", request.owner_principal_name
    return USER_TYPE, client.user


def _request_error(gateway: Needs, client: Client, request: CreateDelegationTokenRequest) -> ErrorCode:
    """The error of a request that no sequencer needs to see, in Kafka's order."""
    if not may_ask(client):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    kind, owner = owner_of(client, request)
    if any(each.principal_type != USER_TYPE for each in request.renewers) or kind != USER_TYPE:
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    if not gateway.delegation_tokens:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    renewers = [each.principal_name for each in request.renewers]
    is_invalid = any(map(user_validation_error, (owner, *renewers))) or renewers_validation_error(renewers)
    return ErrorCode.INVALID_REQUEST if is_invalid else ErrorCode.NONE


def error_answer(
    client: Client, request: CreateDelegationTokenRequest, error: ErrorCode
) -> CreateDelegationTokenResponse:
    """The answer with an error. Kafka names owner and requester also beside an error, and has two kinds of no time."""
    kind, owner = owner_of(client, request)
    no_time = -1 if error in _OF_BROKERS else 0
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=kind,
        principal_name=owner,
        token_requester_principal_type=USER_TYPE,
        token_requester_principal_name=client.user,
        issue_timestamp_ms=no_time,
        expiry_timestamp_ms=no_time,
        max_timestamp_ms=no_time,
    )


def _created(
    gateway: HasTokens, client: Client, request: CreateDelegationTokenRequest, token: DelegationToken
) -> CreateDelegationTokenResponse:
    return msgspec.structs.replace(
        error_answer(client, request, ErrorCode.NONE),
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expiry_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=gateway.delegation_tokens.hmac_of(token),
    )
