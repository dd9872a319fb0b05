"""DeleteAcls: refused filter by filter, since there are none."""

from gateway.context import Client, Gateway
from gateway.handlers.describe_acls import NO_AUTHORIZER
from penstock.kafkawire.api.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.kafkawire.error_codes import ErrorCode


async def handle(gateway: Gateway, client: Client, version: int, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
