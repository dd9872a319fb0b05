"""ShareFetch: acknowledge and acquire records of a share group, in a share session (KIP-932)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int8, Int16, Int32, Int64, Records, String, Uuid, since


class AcknowledgementBatch(msgspec.Struct, frozen=True, gc=False):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # One type for all offsets, or one per offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew (KIP-1222).
    acknowledge_types: list[Int8] = []


class FetchPartition(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class FetchTopic(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ShareFetchRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String | None = None
    member_id: String | None = ""
    # 0: open a session; -1: close it; other values count its requests.
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    # A response may exceed this up to the end of a batch, unless the mode forbids that.
    max_records: Int32 = 0
    # The preferred largest size of one acquired range, in offsets.
    batch_size: Int32 = 0
    # 0: whole batches; 1: at most `max_records` records (KIP-1206).
    share_acquire_mode: Annotated[Int8, since(2)] = 0
    # Whether some acknowledgements are renewals (KIP-1222).
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class LeaderIdAndEpoch(msgspec.Struct, frozen=True, gc=False):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(msgspec.Struct, frozen=True, gc=False):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(msgspec.Struct, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    # Whole batches; the member has acquired only the offsets in `acquired_records`.
    records: Records = b""
    acquired_records: list[AcquiredRecords] = []


class ShareFetchableTopicResponse(msgspec.Struct, frozen=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(msgspec.Struct, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareFetchResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


API = Api(
    key=78,
    name="ShareFetch",
    min_version=1,
    max_version=2,
    flexible_since=0,
    request=ShareFetchRequest,
    response=ShareFetchResponse,
    share_groups_only=True,
)
