"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int8, Int16, Int32, String, since, versions


class FindCoordinatorRequest(msgspec.Struct, frozen=True, gc=False):
    # One key up to version 3, several from version 4 on (KIP-699). The type is 0 for a group, 1 for a transactional id.
    key: Annotated[String, versions(0, 3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[String], since(4)] = []


class Coordinator(msgspec.Struct, frozen=True, gc=False):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class FindCoordinatorResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, versions(0, 3)] = 0
    error_message: Annotated[String | None, versions(1, 3)] = ""
    node_id: Annotated[Int32, versions(0, 3)] = 0
    host: Annotated[String, versions(0, 3)] = ""
    port: Annotated[Int32, versions(0, 3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = []


API = Api(
    key=10,
    name="FindCoordinator",
    min_version=0,
    max_version=6,
    flexible_since=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
