"""DescribeAcls: the access rules that match a filter (KIP-140)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String


class DescribeAclsRequest(msgspec.Struct, frozen=True, gc=False):
    resource_type_filter: Int8 = 0
    # Null matches every name; the same holds for principal and host.
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(msgspec.Struct, frozen=True, gc=False):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(msgspec.Struct, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: list[DescribeAclsResource] = []


API = Api(
    key=29,
    name="DescribeAcls",
    min_version=1,
    max_version=3,
    flexible_since=2,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
)
