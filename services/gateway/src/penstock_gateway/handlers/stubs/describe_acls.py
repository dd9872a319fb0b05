"""DescribeAcls: there are none, and no authorizer that would keep any: said as Kafka says it without one."""

from penstock.kafkawire.api.describe_acls import API as API, DescribeAclsRequest, DescribeAclsResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client

NONE_HERE = "No Authorizer is configured on the broker"
NO_AUTHORIZER = "No Authorizer is configured."  # as Kafka's controller says it, which makes and deletes them


async def handle(gateway: object, client: Client, version: int, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NONE_HERE)
