"""DescribeAcls: there are none, and no authorizer that would keep any: said as Kafka says it without one."""

from penstock.kafkawire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.context import Client, Gateway

NONE_HERE = "No Authorizer is configured on the broker"
NO_AUTHORIZER = "No Authorizer is configured."  # as Kafka's controller says it, which makes and deletes them


async def handle(gateway: Gateway, client: Client, version: int, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NONE_HERE)
