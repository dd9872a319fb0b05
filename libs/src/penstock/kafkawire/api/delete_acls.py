"""DeleteAcls: delete the access rules that match filters (KIP-140)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String


class DeleteAclsFilter(msgspec.Struct, frozen=True, gc=False):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(msgspec.Struct, frozen=True, gc=False):
    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


API = Api(
    key=31,
    name="DeleteAcls",
    min_version=1,
    max_version=3,
    flexible_since=2,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
)
