"""CreateTopics: create topics, or only validate the request."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int8, Int16, Int32, String, Uuid, since, tagged


class CreatableReplicaAssignment(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    value: String | None = ""


class CreatableTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(msgspec.Struct, frozen=True, gc=False):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    topic_id: Annotated[Uuid, since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = ""
    topic_config_error_code: Annotated[Int16, tagged(0), since(5)] = 0
    # The properties of the created topic (KIP-525).
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5)] = []


class CreateTopicsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []


API = Api(
    key=19,
    name="CreateTopics",
    min_version=2,
    max_version=7,
    flexible_since=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)
