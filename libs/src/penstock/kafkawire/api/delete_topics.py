"""DeleteTopics: delete topics by name or by id."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, String, Uuid, nullable, since, versions


class DeleteTopicState(msgspec.Struct, frozen=True, gc=False):
    name: String | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(msgspec.Struct, frozen=True, gc=False):
    # By name up to version 5, by name or by id from version 6 on (KIP-516).
    topics: Annotated[list[DeleteTopicState], since(6)] = []
    topic_names: Annotated[list[String], versions(0, 5)] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[String | None, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5)] = None


class DeleteTopicsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []


API = Api(
    key=20,
    name="DeleteTopics",
    min_version=1,
    max_version=6,
    flexible_since=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)
