"""DescribeAcls: rejected with Kafka's error for a broker without an authorizer."""

from penstock.kafkawire.api.describe_acls import API as API, DescribeAclsRequest, DescribeAclsResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client

NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
NO_AUTHORIZER = "No Authorizer is configured."  # the text of Kafka's controller, which creates and deletes ACLs


async def handle(gateway: object, client: Client, version: int, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
