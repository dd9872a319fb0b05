"""ShareAcknowledge: acknowledge records that a member of a share group acquired (KIP-932)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid, since


class AcknowledgementBatch(msgspec.Struct, frozen=True, gc=False):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # One type for all offsets, or one per offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew (KIP-1222).
    acknowledge_types: list[Int8] = []


class AcknowledgePartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgeTopic(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[AcknowledgePartition] = []


class ShareAcknowledgeRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String | None = None
    member_id: String | None = ""
    # -1: close the session; otherwise the next epoch of a session that must exist.
    share_session_epoch: Int32 = 0
    # Whether some acknowledgements are renewals (KIP-1222).
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[AcknowledgeTopic] = []


class LeaderIdAndEpoch(msgspec.Struct, frozen=True, gc=False):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionData(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(msgspec.Struct, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareAcknowledgeResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2)] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


API = Api(
    key=79,
    name="ShareAcknowledge",
    min_version=1,
    max_version=2,
    flexible_since=0,
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
    share_groups_only=True,
)
