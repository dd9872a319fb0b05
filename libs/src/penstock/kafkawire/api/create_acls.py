"""CreateAcls: allow or deny operations to principals (KIP-140)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String


class AclCreation(msgspec.Struct, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(msgspec.Struct, frozen=True, gc=False):
    creations: list[AclCreation] = []


class AclCreationResult(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


API = Api(
    key=30,
    name="CreateAcls",
    min_version=1,
    max_version=3,
    flexible_since=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
)
