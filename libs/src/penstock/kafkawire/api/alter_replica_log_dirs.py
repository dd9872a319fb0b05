"""AlterReplicaLogDirs: move a broker's replicas between its directories (KIP-113)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Int16, Int32, String


class AlterReplicaLogDirTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(msgspec.Struct, frozen=True, gc=False):
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(msgspec.Struct, frozen=True, gc=False):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    min_version=1,
    max_version=2,
    flexible_since=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)
