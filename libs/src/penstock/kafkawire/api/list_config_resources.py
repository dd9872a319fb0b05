"""ListConfigResources: the resources that have configurations (KIP-714, KIP-1142)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String, since


class ListConfigResourcesRequest(msgspec.Struct, frozen=True, gc=False):
    # Empty: all types. Version 0 has only type 16, the metrics subscriptions of clients.
    resource_types: Annotated[list[Int8], since(1)] = []


class ConfigResource(msgspec.Struct, frozen=True, gc=False):
    resource_name: String = ""
    resource_type: Annotated[Int8, since(1)] = 16


class ListConfigResourcesResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


API = Api(
    key=74,
    name="ListConfigResources",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
