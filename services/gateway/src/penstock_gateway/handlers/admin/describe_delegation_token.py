"""DescribeDelegationToken: the valid tokens of the given owners, requesters and renewers (KIP-48, KIP-373).

The checks before this handler leave out those that the client may not see.
"""

from penstock.contracts.acls import USER_TYPE
from penstock.contracts.commands import DelegationToken
from penstock.kafkawire.api.describe_delegation_token import (
    API as API,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.security.delegation.delegation_tokens import HasTokens, may_ask


async def handle(
    gateway: HasTokens, client: Client, version: int, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    tokens = gateway.delegation_tokens
    if not may_ask(client):
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not tokens:
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if not await tokens.cache.refresh():
        return DescribeDelegationTokenResponse(ADMINISTRATION_UNAVAILABLE)
    owners = None
    if request.owners is not None:
        owners = {each.principal_name for each in request.owners if each.principal_type == USER_TYPE}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac_of(token))
            async for token in Slices().of(tokens.cache.valid())
            if owners is None or owners & {token.owner, token.requester, *token.renewers}
        ]
    )


def _described(token: DelegationToken, token_hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=USER_TYPE,
        principal_name=token.owner,
        token_requester_principal_type=USER_TYPE,
        token_requester_principal_name=token.requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[DescribedDelegationTokenRenewer(USER_TYPE, each) for each in token.renewers],
    )
