"""DescribeAcls: lists the access control lists that a filter matches, by resource (KIP-140)."""

from penstock.contracts.acls import PatternType, ResourceType, matches
from penstock.kafkawire.api.describe_acls import (
    API as API,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.security.acl_codes import filter_of
from penstock_gateway.security.security_cache import HasSecurity


async def handle(
    gateway: HasSecurity, client: Client, version: int, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    wanted = filter_of(request)
    if isinstance(wanted, str):
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wanted)
    if not await gateway.security.refresh():
        return DescribeAclsResponse(
            error_code=ADMINISTRATION_UNAVAILABLE, error_message="no sequencer answered in time"
        )
    resources: dict[tuple[ResourceType, str, PatternType], list[AclDescription]] = {}
    async for each in Slices().of(gateway.security.bindings):
        if matches(wanted, each):
            resource = (each.resource_type, each.name, each.pattern_type)
            description = AclDescription(each.principal, each.host, each.operation, each.permission)
            resources.setdefault(resource, []).append(description)
    found = [DescribeAclsResource(*resource, acls) for resource, acls in resources.items()]
    return DescribeAclsResponse(error_message=None, resources=found)
