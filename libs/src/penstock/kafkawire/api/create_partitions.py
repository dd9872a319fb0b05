"""CreatePartitions: add partitions to topics."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int16, Int32, String


class CreatePartitionsAssignment(msgspec.Struct, frozen=True, gc=False):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    count: Int32 = 0
    # Null: the cluster chooses the brokers.
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(msgspec.Struct, frozen=True, gc=False):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


API = Api(
    key=37,
    name="CreatePartitions",
    min_version=0,
    max_version=3,
    flexible_since=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
