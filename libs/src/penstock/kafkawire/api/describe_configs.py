"""DescribeConfigs: the configurations of topics and brokers, with their sources."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, String, since


class DescribeConfigsResource(msgspec.Struct, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    # Null: all of them.
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(msgspec.Struct, frozen=True, gc=False):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsSynonym(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[String | None, since(3)] = ""


class DescribeConfigsResult(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


API = Api(
    key=32,
    name="DescribeConfigs",
    min_version=1,
    max_version=4,
    flexible_since=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)
