"""AlterConfigs: replace all configurations of topics and brokers; superseded by IncrementalAlterConfigs (KIP-339)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, String


class AlterableConfig(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(msgspec.Struct, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(msgspec.Struct, frozen=True, gc=False):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


API = Api(
    key=33,
    name="AlterConfigs",
    min_version=0,
    max_version=2,
    flexible_since=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
)
