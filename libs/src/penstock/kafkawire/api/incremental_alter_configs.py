"""IncrementalAlterConfigs: change single configurations of topics and brokers (KIP-339)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, String


class AlterableConfig(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    # 0: set the value; 1: delete it; 2: append to a list; 3: subtract from a list.
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(msgspec.Struct, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(msgspec.Struct, frozen=True, gc=False):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    min_version=0,
    max_version=1,
    flexible_since=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)
