"""CreateAcls: rejects each ACL with Kafka's error for a broker without an authorizer."""

from penstock.kafkawire.api.create_acls import API as API, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.stubs.describe_acls import NO_AUTHORIZER
from penstock_gateway.kafka.client import Client


async def handle(gateway: object, client: Client, version: int, request: CreateAclsRequest) -> CreateAclsResponse:
    rejected = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[rejected] * len(request.creations))
