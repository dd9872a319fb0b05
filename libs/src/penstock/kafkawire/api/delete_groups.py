"""DeleteGroups: delete empty consumer groups and their offsets."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String, since


class DeleteGroupsRequest(msgspec.Struct, frozen=True, gc=False):
    groups_names: list[String] = []


class DeletableGroupResult(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(3)] = None


class DeleteGroupsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


API = Api(
    key=42,
    name="DeleteGroups",
    min_version=0,
    max_version=3,
    flexible_since=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
