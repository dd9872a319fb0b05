"""The table of the APIs that Penstock serves, and the codecs of their messages."""

import functools

import msgspec

from penstock.kafkawire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.kafkawire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from penstock.kafkawire.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.kafkawire.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.kafkawire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.kafkawire.api.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from penstock.kafkawire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from penstock.kafkawire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.kafkawire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.kafkawire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.kafkawire.api.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.kafkawire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.kafkawire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.kafkawire.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.kafkawire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.kafkawire.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.kafkawire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.kafkawire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.kafkawire.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from penstock.kafkawire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.kafkawire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from penstock.kafkawire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.kafkawire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.kafkawire.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from penstock.kafkawire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from penstock.kafkawire.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from penstock.kafkawire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.kafkawire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.kafkawire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.kafkawire.api.end_txn import EndTxnRequest, EndTxnResponse
from penstock.kafkawire.api.fetch import FetchRequest, FetchResponse
from penstock.kafkawire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.kafkawire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.kafkawire.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.kafkawire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.kafkawire.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from penstock.kafkawire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.kafkawire.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.kafkawire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.kafkawire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataResponse
from penstock.kafkawire.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.kafkawire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.kafkawire.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from penstock.kafkawire.api.produce import ProduceRequest, ProduceResponse
from penstock.kafkawire.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from penstock.kafkawire.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.kafkawire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from penstock.kafkawire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.kafkawire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.kafkawire.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from penstock.kafkawire.api.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from penstock.kafkawire.decoder import Decode, make_decoder
from penstock.kafkawire.encoder import Encode, make_encoder
from penstock.kafkawire.errors import UnsupportedVersion
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.source import Message

# The largest honest requests name some 100,000 partitions; what comes from anybody is held to a few times that.
REQUEST_ELEMENTS_MAX = 250_000
# Answers come from Penstock itself. Metadata has four elements and more for each partition.
RESPONSE_ELEMENTS_MAX = 10_000_000


class Api(msgspec.Struct, frozen=True):
    """One API: the versions served, both included, and the first one with compact lengths and tagged fields."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int  # KIP-482
    request: type[msgspec.Struct]
    response: type[msgspec.Struct]


# Served only where share groups are on (KIP-932).
SHARE_GROUP_APIS = frozenset((76, 77, 78, 79, 90, 91, 92))

# Produce starts at 0 although 0 to 2 carry formats that are refused: from 3 on, older librdkafka would silently send
# gzip, snappy and lz4 uncompressed.
API_TABLE: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", 0, 13, 9, ProduceRequest, ProduceResponse),
        Api(1, "Fetch", 4, 17, 12, FetchRequest, FetchResponse),
        Api(2, "ListOffsets", 1, 11, 6, ListOffsetsRequest, ListOffsetsResponse),
        Api(3, "Metadata", 0, 13, 9, MetadataRequest, MetadataResponse),
        Api(8, "OffsetCommit", 2, 9, 8, OffsetCommitRequest, OffsetCommitResponse),
        Api(9, "OffsetFetch", 1, 9, 6, OffsetFetchRequest, OffsetFetchResponse),
        Api(10, "FindCoordinator", 0, 5, 3, FindCoordinatorRequest, FindCoordinatorResponse),
        Api(11, "JoinGroup", 0, 9, 6, JoinGroupRequest, JoinGroupResponse),
        Api(12, "Heartbeat", 0, 4, 4, HeartbeatRequest, HeartbeatResponse),
        Api(13, "LeaveGroup", 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse),
        Api(14, "SyncGroup", 0, 5, 4, SyncGroupRequest, SyncGroupResponse),
        Api(15, "DescribeGroups", 0, 6, 5, DescribeGroupsRequest, DescribeGroupsResponse),
        Api(16, "ListGroups", 0, 5, 3, ListGroupsRequest, ListGroupsResponse),
        Api(18, "ApiVersions", 0, 4, 3, ApiVersionsRequest, ApiVersionsResponse),
        Api(19, "CreateTopics", 2, 7, 5, CreateTopicsRequest, CreateTopicsResponse),
        Api(20, "DeleteTopics", 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse),
        Api(21, "DeleteRecords", 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse),
        Api(22, "InitProducerId", 0, 5, 2, InitProducerIdRequest, InitProducerIdResponse),
        Api(23, "OffsetForLeaderEpoch", 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        Api(29, "DescribeAcls", 1, 3, 2, DescribeAclsRequest, DescribeAclsResponse),
        Api(30, "CreateAcls", 1, 3, 2, CreateAclsRequest, CreateAclsResponse),
        Api(31, "DeleteAcls", 1, 3, 2, DeleteAclsRequest, DeleteAclsResponse),
        Api(24, "AddPartitionsToTxn", 0, 5, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
        Api(25, "AddOffsetsToTxn", 0, 4, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
        Api(26, "EndTxn", 0, 5, 3, EndTxnRequest, EndTxnResponse),
        Api(27, "WriteTxnMarkers", 1, 2, 1, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
        Api(28, "TxnOffsetCommit", 0, 5, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        Api(32, "DescribeConfigs", 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse),
        Api(33, "AlterConfigs", 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse),
        Api(34, "AlterReplicaLogDirs", 1, 2, 2, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
        Api(35, "DescribeLogDirs", 1, 5, 2, DescribeLogDirsRequest, DescribeLogDirsResponse),
        Api(37, "CreatePartitions", 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse),
        Api(42, "DeleteGroups", 0, 2, 2, DeleteGroupsRequest, DeleteGroupsResponse),
        Api(43, "ElectLeaders", 0, 2, 2, ElectLeadersRequest, ElectLeadersResponse),
        Api(44, "IncrementalAlterConfigs", 0, 1, 1, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        Api(
            45,
            "AlterPartitionReassignments",
            0,
            1,
            0,
            AlterPartitionReassignmentsRequest,
            AlterPartitionReassignmentsResponse,
        ),
        Api(
            46,
            "ListPartitionReassignments",
            0,
            0,
            0,
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsResponse,
        ),
        Api(47, "OffsetDelete", 0, 0, 1, OffsetDeleteRequest, OffsetDeleteResponse),
        Api(48, "DescribeClientQuotas", 0, 1, 1, DescribeClientQuotasRequest, DescribeClientQuotasResponse),
        Api(49, "AlterClientQuotas", 0, 1, 1, AlterClientQuotasRequest, AlterClientQuotasResponse),
        Api(
            50,
            "DescribeUserScramCredentials",
            0,
            0,
            0,
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse,
        ),
        Api(60, "DescribeCluster", 0, 2, 0, DescribeClusterRequest, DescribeClusterResponse),
        Api(74, "ListConfigResources", 0, 1, 0, ListConfigResourcesRequest, ListConfigResourcesResponse),
        Api(61, "DescribeProducers", 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse),
        Api(65, "DescribeTransactions", 0, 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse),
        Api(66, "ListTransactions", 0, 2, 0, ListTransactionsRequest, ListTransactionsResponse),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
        Api(69, "ConsumerGroupDescribe", 0, 1, 0, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
        Api(75, "DescribeTopicPartitions", 0, 0, 0, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
        Api(76, "ShareGroupHeartbeat", 1, 1, 0, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
        Api(77, "ShareGroupDescribe", 1, 1, 0, ShareGroupDescribeRequest, ShareGroupDescribeResponse),
        Api(78, "ShareFetch", 1, 2, 0, ShareFetchRequest, ShareFetchResponse),
        Api(79, "ShareAcknowledge", 1, 2, 0, ShareAcknowledgeRequest, ShareAcknowledgeResponse),
        Api(
            90,
            "DescribeShareGroupOffsets",
            0,
            1,
            0,
            DescribeShareGroupOffsetsRequest,
            DescribeShareGroupOffsetsResponse,
        ),
        Api(91, "AlterShareGroupOffsets", 0, 0, 0, AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
        Api(92, "DeleteShareGroupOffsets", 0, 0, 0, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse),
    )
}


def decode_request(api_key: int, version: int, body: Buffer, position: int = 0) -> Message:
    """The request in `body` from `position` on; record bytes in it are views of `body`. Raises only `DecodeError`."""
    return _request_decoder(api_key, version)(memoryview(body), position)


def decode_response(api_key: int, version: int, body: Buffer) -> Message:
    """The response in `body`; record bytes in it are views of `body`. Raises only `DecodeError`."""
    return _response_decoder(api_key, version)(memoryview(body), 0)


def encode_request(api_key: int, version: int, request: msgspec.Struct) -> bytes:
    """The body of a request; fields that this version lacks are left out. `EncodeError` for what has no bytes."""
    return b"".join(_request_encoder(api_key, version)(request))


def encode_response(api_key: int, version: int, response: msgspec.Struct) -> list[Buffer]:
    """The body of a response as buffers to be sent one after another; record bytes are handed on, not copied."""
    return _response_encoder(api_key, version)(response)


def is_flexible(api: Api, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return version >= api.flexible_since


def serves(api_key: int, version: int) -> bool:
    """Whether Penstock serves this API in this version."""
    api = API_TABLE.get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


# The codecs are made on first use, about a millisecond each, and kept: there are as many as versions served.


@functools.cache
def _request_decoder(api_key: int, version: int) -> Decode:
    api = _served(api_key, version)
    return make_decoder(api.request, version, is_flexible(api, version), REQUEST_ELEMENTS_MAX)


@functools.cache
def _response_decoder(api_key: int, version: int) -> Decode:
    api = _served(api_key, version)
    return make_decoder(api.response, version, is_flexible(api, version), RESPONSE_ELEMENTS_MAX)


@functools.cache
def _request_encoder(api_key: int, version: int) -> Encode:
    api = _served(api_key, version)
    return make_encoder(api.request, version, is_flexible(api, version))


@functools.cache
def _response_encoder(api_key: int, version: int) -> Encode:
    api = _served(api_key, version)
    return make_encoder(api.response, version, is_flexible(api, version))


def _served(api_key: int, version: int) -> Api:
    if not serves(api_key, version):
        raise UnsupportedVersion(f"api {api_key} version {version} is not served")
    return API_TABLE[api_key]
