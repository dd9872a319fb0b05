"""CreateAcls: refused one by one, since nobody would go by them."""

from gateway.context import Client, Gateway
from gateway.handlers.describe_acls import NO_AUTHORIZER
from penstock.kafkawire.api.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.kafkawire.error_codes import ErrorCode


async def handle(gateway: Gateway, client: Client, version: int, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
