"""DescribeLogDirs: the bytes of each partition in a broker's directories (KIP-113)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int16, Int32, Int64, String, since


class DescribableLogDirTopic(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(msgspec.Struct, frozen=True, gc=False):
    # Null: all topics.
    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    # Whether the log is being moved into this directory.
    is_future_key: Bool = False


class DescribeLogDirsTopic(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    # Of the volume that holds the directory (KIP-827); -1: unknown.
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1
    # Whether the directory takes no new partitions (KIP-1066).
    is_cordoned: Annotated[Bool, since(5)] = False


class DescribeLogDirsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: list[DescribeLogDirsResult] = []


API = Api(
    key=35,
    name="DescribeLogDirs",
    min_version=1,
    max_version=5,
    flexible_since=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
