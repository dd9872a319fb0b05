"""The changes of delegation tokens. Requests name a token by its password, events by its id."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.contracts.acls import ResourceType
from penstock.kafkawire.api import create_delegation_token, expire_delegation_token, renew_delegation_token
from penstock_gateway.audit_topic.changes import ALTER, CREATE, DELETE, Change, Message
from penstock_gateway.security.delegation.delegation_tokens import HasTokens

TOKEN = ResourceType.DELEGATION_TOKEN.name


def _created(
    gateway: HasTokens,
    request: create_delegation_token.CreateDelegationTokenRequest,
    response: create_delegation_token.CreateDelegationTokenResponse | None,
) -> Iterator[Change]:
    owner = f"{request.owner_principal_type}:{request.owner_principal_name}" if request.owner_principal_name else ""
    token_id = ""
    if response is not None:
        owner, token_id = f"{response.principal_type}:{response.principal_name}", response.token_id
    renewers = ", ".join(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
    detail = f"owner {owner or 'the client'}" + (f", renewers {renewers}" if renewers else "")
    yield Change(CREATE, f"{TOKEN}:{token_id}", None if response is None else response.error_code, detail)


def _renewed(
    gateway: HasTokens,
    request: renew_delegation_token.RenewDelegationTokenRequest,
    response: renew_delegation_token.RenewDelegationTokenResponse | None,
) -> Iterator[Change]:
    yield Change(ALTER, *_changed(gateway, request.hmac, response), f"renew for {request.renew_period_ms} ms")


def _expired(
    gateway: HasTokens,
    request: expire_delegation_token.ExpireDelegationTokenRequest,
    response: expire_delegation_token.ExpireDelegationTokenResponse | None,
) -> Iterator[Change]:
    is_now = request.expiry_time_period_ms < 0
    detail = "revoke" if is_now else f"expire in {request.expiry_time_period_ms} ms"
    yield Change(DELETE if is_now else ALTER, *_changed(gateway, request.hmac, response), detail)


def _changed(gateway: HasTokens, token_hmac: bytes, response: Message | None) -> tuple[str, int | None]:
    """The resource, and the error, None if the outcome is not known."""
    resource = f"{TOKEN}:{gateway.delegation_tokens.cache.id_of(token_hmac)}"
    return resource, None if response is None else response.error_code


# With the gateway as their first argument.
TOKEN_CHANGES: Mapping[int, Callable[[Any, Message, Message | None], Iterator[Change]]] = {
    create_delegation_token.API.key: _created,
    renew_delegation_token.API.key: _renewed,
    expire_delegation_token.API.key: _expired,
}
