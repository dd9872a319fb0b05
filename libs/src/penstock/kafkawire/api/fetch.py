"""Fetch: read record batches from partitions, or wait for them."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    since,
    tagged,
    versions,
)


class FetchPartition(msgspec.Struct, frozen=True, gc=False):
    partition: Int32 = 0
    # The leader epoch that the client knows, for fencing (KIP-320).
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32 = 0
    # Only from replicas (KIP-853).
    replica_directory_id: Annotated[Uuid, tagged(0), since(17)] = NO_UUID
    # Only from replicas (KIP-1166); the largest int64 means that the sender does not support it.
    high_watermark: Annotated[Int64, tagged(1), since(18)] = 2**63 - 1


class FetchTopic(msgspec.Struct, frozen=True, gc=False):
    topic: Annotated[String, versions(0, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID  # KIP-516
    partitions: list[FetchPartition] = []


class ForgottenTopic(msgspec.Struct, frozen=True, gc=False):
    topic: Annotated[String, versions(7, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: list[Int32] = []


class ReplicaState(msgspec.Struct, frozen=True, gc=False):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    cluster_id: Annotated[String | None, tagged(0), since(12)] = None
    replica_id: Annotated[Int32, versions(0, 14)] = -1
    replica_state: Annotated[ReplicaState, tagged(1), since(15)] = ReplicaState()  # KIP-903
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    # Incremental fetch sessions (KIP-227): id 0 in the response means that there is no session.
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = []
    # The client's rack, so that it can read from a near replica (KIP-392).
    rack_id: Annotated[String, since(11)] = ""


class EpochEndOffset(msgspec.Struct, frozen=True, gc=False):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(msgspec.Struct, frozen=True, gc=False):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(msgspec.Struct, frozen=True, gc=False):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    # For replicas and clients after a change of the leader (KIP-595).
    diverging_epoch: Annotated[EpochEndOffset, tagged(0), since(12)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, tagged(1), since(12)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, tagged(2), since(12)] = SnapshotId()
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records = None


class FetchableTopicResponse(msgspec.Struct, frozen=True, gc=False):
    topic: Annotated[String, versions(0, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(msgspec.Struct, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse] = []
    # The addresses of the leaders in the partition responses (KIP-951).
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0), since(16)] = []


API = Api(
    key=1,
    name="Fetch",
    min_version=4,
    max_version=18,
    flexible_since=12,
    request=FetchRequest,
    response=FetchResponse,
)
