"""DeleteAcls: rejects each filter with Kafka's error for a broker without an authorizer."""

from penstock.kafkawire.api.delete_acls import API as API, DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.stubs.describe_acls import NO_AUTHORIZER
from penstock_gateway.kafka.client import Client


async def handle(gateway: object, client: Client, version: int, request: DeleteAclsRequest) -> DeleteAclsResponse:
    rejected = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[rejected] * len(request.filters))
