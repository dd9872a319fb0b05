"""The checks of the APIs of delegation tokens. The state machine itself checks renewals and ends."""

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType, user_principal
from penstock.kafkawire.api import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.enforcement.guard import Call, Checks, Message, Proceed
from penstock_gateway.handlers.admin.create_delegation_token import error_answer, owner_of
from penstock_gateway.security.delegation.delegation_tokens import may_ask

USER, DELEGATION_TOKEN = ResourceType.USER, ResourceType.DELEGATION_TOKEN
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS
DESCRIBE = AclOperation.DESCRIBE


async def check_created(
    call: Call, request: create_delegation_token.CreateDelegationTokenRequest, proceed: Proceed
) -> Message:
    """Check the right to create tokens of another owner. The handler refuses clients that may not ask at all."""
    kind, owner = owner_of(call.client, request)
    principal = f"{kind}:{owner}"
    is_own = principal == user_principal(call.client.user)
    if is_own or not may_ask(call.client) or call.access.allows(CREATE_TOKENS, USER, principal):
        return await proceed(request)
    return error_answer(call.client, request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


async def hide_tokens(
    call: Call, request: describe_delegation_token.DescribeDelegationTokenRequest, proceed: Proceed
) -> Message:
    """Leave out the tokens that the client may not see."""
    response = await proceed(request)
    seen = [token async for token in Slices().of(response.tokens) if _sees(call, token)]
    return msgspec.structs.replace(response, tokens=seen)


def _sees(call: Call, token: describe_delegation_token.DescribedDelegationToken) -> bool:
    """Whether the client is the owner, the requester or a renewer, or has a right to see the token."""
    users = [token.principal_name, token.token_requester_principal_name]
    if call.client.user in users or any(call.client.user == each.principal_name for each in token.renewers):
        return True
    owner = user_principal(token.principal_name)
    return call.access.allows(DESCRIBE, DELEGATION_TOKEN, token.token_id, reports=False) or call.access.allows(
        DESCRIBE_TOKENS, USER, owner, reports=False
    )


CHECKS: Checks = {
    create_delegation_token.API.key: (check_created,),
    renew_delegation_token.API.key: (),
    expire_delegation_token.API.key: (),
    describe_delegation_token.API.key: (hide_tokens,),
}
