"""Requests of every API, and sets of bindings, for a comparison of two brokers. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.kafkawire import api as wire
from penstock.kafkawire.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch

USER = "User:ANONYMOUS"
EXISTING, MISSING, GROUP, TRANSACTION = "t1", "t2", "g1", "x1"
REFUSALS = {each for each in ErrorCode if each.name.endswith("AUTHORIZATION_FAILED")}
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
SERVED = 0
NAMES = ("name", "user", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key")
NO_ID = bytes(16)
EVERYTHING = "ALL of all"


class Question(msgspec.Struct, frozen=True):
    """One request of the comparison."""

    label: str
    key: int
    version: int
    request: msgspec.Struct


def binding_sets() -> Mapping[str, list[AclBinding]]:
    """The bindings of each cell, by the label of the set."""
    sets: dict[str, list[AclBinding]] = {"nothing": []}
    resources = [
        (ResourceType.TOPIC, EXISTING, "READ WRITE DESCRIBE CREATE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (ResourceType.GROUP, GROUP, "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (ResourceType.TRANSACTIONAL_ID, TRANSACTION, "WRITE DESCRIBE"),
        (
            ResourceType.CLUSTER,
            "kafka-cluster",
            "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
        ),
    ]
    for resource_type, name, operations in resources:
        for operation in operations.split():
            label = f"{operation} {resource_type.name}"
            sets[label] = [_allow(resource_type, name, AclOperation[operation])]
    every = [
        _allow(resource_type, name if resource_type is ResourceType.CLUSTER else "*", AclOperation.ALL)
        for resource_type, name, _ in resources
    ]
    topic = ResourceType.TOPIC
    prefixed = _allow(topic, "t", AclOperation.ALL, pattern=PatternType.PREFIXED)
    sets |= {
        EVERYTHING: every,
        "ALL of all for User:*": [msgspec.structs.replace(each, principal="User:*") for each in every],
        "ALL of all for another user": [msgspec.structs.replace(each, principal="User:other") for each in every],
        "ALL of all from another host": [msgspec.structs.replace(each, host="10.9.9.9") for each in every],
        "ALL of all but READ of the topic": [*every, _deny(topic, EXISTING, AclOperation.READ)],
        "ALL of all but ALL of the group": [*every, _deny(ResourceType.GROUP, GROUP, AclOperation.ALL)],
        "ALL of prefixed topics": [prefixed],
        "ALL of prefixed topics but DESCRIBE of one": [prefixed, _deny(topic, EXISTING, AclOperation.DESCRIBE)],
        "READ of topic and group": [
            _allow(topic, EXISTING, AclOperation.READ),
            _allow(ResourceType.GROUP, GROUP, AclOperation.READ),
        ],
        "WRITE of topic and transaction": [
            _allow(topic, EXISTING, AclOperation.WRITE),
            _allow(ResourceType.TRANSACTIONAL_ID, TRANSACTION, AclOperation.WRITE),
        ],
    }
    return sets


def _allow(
    resource_type: ResourceType, name: str, operation: AclOperation, *, pattern: PatternType = PatternType.LITERAL
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, USER, "*", operation, AclPermission.ALLOW)


def _deny(resource_type: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(resource_type, name, PatternType.LITERAL, USER, "*", operation, AclPermission.DENY)


def questions(topic_id: bytes, new_name: str) -> Iterator[Question]:
    """One or more requests of each API; `new_name` names topics that no earlier request of the run has created."""
    yield from (*_of_records(topic_id), *_of_topics(topic_id, new_name), *_of_groups(), *_of_producers())
    yield from _of_share_groups(topic_id)
    yield from _of_the_cluster()


def _ask(module: Any, request: msgspec.Struct, version: int | None = None, label: str = "") -> Question:
    newest = module.API.max_version if version is None else version
    return Question(label or f"{module.API.name} v{newest}", module.API.key, newest, request)


def _of_records(topic_id: bytes) -> list[Question]:
    batch = [produce.PartitionProduceData(0, build_batch([Record(value=b"x")]))]
    by_name = [produce.TopicProduceData(name, partition_data=batch) for name in (EXISTING, MISSING)]
    by_id = [produce.TopicProduceData(topic_id=topic_id, partition_data=batch)]
    offset = [fetch.FetchPartition(0, partition_max_bytes=1_000)]
    fetched = [fetch.FetchTopic(name, partitions=offset) for name in (EXISTING, MISSING)]
    listed = [list_offsets.ListOffsetsPartition(0, -1, -1)]
    epochs = [offset_for_leader_epoch.OffsetForLeaderPartition(0)]
    return [
        _ask(produce, produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=by_name), 12),
        _ask(produce, produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=by_id)),
        _ask(fetch, fetch.FetchRequest(topics=fetched), 12),
        _ask(fetch, fetch.FetchRequest(topics=[fetch.FetchTopic(topic_id=topic_id, partitions=offset)])),
        _ask(
            list_offsets,
            list_offsets.ListOffsetsRequest(
                -1, topics=[list_offsets.ListOffsetsTopic(name, listed) for name in (EXISTING, MISSING)]
            ),
        ),
        _ask(
            offset_for_leader_epoch,
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                -1, [offset_for_leader_epoch.OffsetForLeaderTopic(name, epochs) for name in (EXISTING, MISSING)]
            ),
        ),
        _ask(
            delete_records,
            delete_records.DeleteRecordsRequest(
                [
                    delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition(0, 0)])
                    for name in (EXISTING, MISSING)
                ],
                10_000,
            ),
        ),
        _ask(
            describe_producers,
            describe_producers.DescribeProducersRequest(
                [describe_producers.TopicRequest(name, [0]) for name in (EXISTING, MISSING)]
            ),
        ),
    ]


def _of_topics(topic_id: bytes, new_name: str) -> list[Question]:
    named = [metadata.MetadataRequestTopic(name=name) for name in (EXISTING, MISSING)]
    by_id = [metadata.MetadataRequestTopic(each, None) for each in (topic_id, b"\7" * 16)]
    new = [metadata.MetadataRequestTopic(name=new_name)]
    gone = [delete_topics.DeleteTopicState(MISSING), delete_topics.DeleteTopicState(None, b"\7" * 16)]
    resources = [(2, EXISTING), (2, MISSING), (32, GROUP)]
    return [
        _ask(metadata, metadata.MetadataRequest(named, False), 12, "Metadata by name"),
        _ask(metadata, metadata.MetadataRequest(by_id, False), 12, "Metadata by id"),
        _ask(metadata, metadata.MetadataRequest(None, False), 12, "Metadata of all topics"),
        _ask(metadata, metadata.MetadataRequest(new), 12, "Metadata that creates"),
        _ask(
            describe_topic_partitions,
            describe_topic_partitions.DescribeTopicPartitionsRequest(
                [describe_topic_partitions.TopicRequest(name) for name in (EXISTING, MISSING)]
            ),
        ),
        _ask(
            create_topics,
            create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic(name, 1, 1) for name in ("t3", "u3")], 10_000, True
            ),
        ),
        _ask(
            create_partitions,
            create_partitions.CreatePartitionsRequest(
                [create_partitions.CreatePartitionsTopic(name, 2, None) for name in (EXISTING, MISSING)], 10_000, True
            ),
        ),
        _ask(delete_topics, delete_topics.DeleteTopicsRequest(gone, timeout_ms=10_000)),
        _ask(
            describe_configs,
            describe_configs.DescribeConfigsRequest(
                [describe_configs.DescribeConfigsResource(kind, name, None) for kind, name in (*resources, (4, ""))]
            ),
        ),
        _ask(
            alter_configs,
            alter_configs.AlterConfigsRequest(
                [alter_configs.AlterConfigsResource(kind, name, []) for kind, name in resources[:2]], True
            ),
        ),
        _ask(
            incremental_alter_configs,
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                [incremental_alter_configs.AlterConfigsResource(kind, name, []) for kind, name in resources], True
            ),
        ),
    ]


def _of_groups() -> list[Question]:
    committed = [
        offset_commit.OffsetCommitRequestTopic(name, partitions=[offset_commit.OffsetCommitRequestPartition(0, 0)])
        for name in (EXISTING, MISSING)
    ]
    deleted = [
        offset_delete.OffsetDeleteRequestTopic(name, [offset_delete.OffsetDeleteRequestPartition(0)])
        for name in (EXISTING, MISSING)
    ]
    both = [offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in (EXISTING, MISSING)]
    groups = [offset_fetch.OffsetFetchRequestGroup(name, topics=both) for name in (GROUP, "g2")]
    every = [offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None)]
    old = [offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in (EXISTING, MISSING)]
    member = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        GROUP, "AAAAAAAAAAAAAAAAAAAAAA", 7, subscribed_topic_names=[EXISTING]
    )
    topology = streams_group_heartbeat.Topology(
        0, [streams_group_heartbeat.Subtopology("0", [EXISTING], repartition_sink_topics=[MISSING])]
    )
    worker = streams_group_heartbeat.StreamsGroupHeartbeatRequest(GROUP, "AAAAAAAAAAAAAAAAAAAAAA", 7, topology=topology)
    return [
        _ask(
            join_group,
            join_group.JoinGroupRequest(
                GROUP, 10_000, 10_000, "", None, "consumer", [join_group.JoinGroupRequestProtocol("range", b"")]
            ),
        ),
        _ask(sync_group, sync_group.SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range")),
        _ask(heartbeat, heartbeat.HeartbeatRequest(GROUP, 1, "m")),
        _ask(leave_group, leave_group.LeaveGroupRequest(GROUP, members=[leave_group.MemberIdentity("m")])),
        _ask(offset_commit, offset_commit.OffsetCommitRequest(GROUP, topics=committed), 9),
        _ask(offset_fetch, offset_fetch.OffsetFetchRequest(groups=groups), 9),
        _ask(offset_fetch, offset_fetch.OffsetFetchRequest(groups=every), 9, "OffsetFetch of all topics"),
        _ask(offset_fetch, offset_fetch.OffsetFetchRequest(GROUP, old), 7),
        _ask(offset_delete, offset_delete.OffsetDeleteRequest(GROUP, deleted)),
        _ask(find_coordinator, find_coordinator.FindCoordinatorRequest(GROUP), 3),
        _ask(
            find_coordinator,
            find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, "g2"]),
            label="FindCoordinator of groups",
        ),
        _ask(
            find_coordinator,
            find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION, "x2"]),
            label="FindCoordinator of transactions",
        ),
        _ask(describe_groups, describe_groups.DescribeGroupsRequest([GROUP, "g2"])),
        _ask(list_groups, list_groups.ListGroupsRequest(types_filter=["classic", "consumer"])),
        _ask(delete_groups, delete_groups.DeleteGroupsRequest(["g2", "g3"])),
        _ask(consumer_group_heartbeat, member),
        _ask(streams_group_heartbeat, worker),
        _ask(streams_group_describe, streams_group_describe.StreamsGroupDescribeRequest([GROUP, "g2"])),
        _ask(consumer_group_describe, consumer_group_describe.ConsumerGroupDescribeRequest([GROUP, "g2"])),
    ]


def _of_producers() -> list[Question]:
    added = [add_partitions_to_txn.AddPartitionsToTxnTopic(name, [0]) for name in (EXISTING, MISSING)]
    committed = [
        txn_offset_commit.TxnOffsetCommitRequestTopic(
            name, partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(0, 0)]
        )
        for name in (EXISTING, MISSING)
    ]
    markers = [write_txn_markers.WritableTxnMarkerTopic(MISSING, [0])]
    return [
        _ask(init_producer_id, init_producer_id.InitProducerIdRequest(None, 60_000), label="InitProducerId idempotent"),
        _ask(init_producer_id, init_producer_id.InitProducerIdRequest(TRANSACTION, 60_000)),
        _ask(
            add_partitions_to_txn,
            add_partitions_to_txn.AddPartitionsToTxnRequest([], TRANSACTION, 77, 0, added),
            3,
        ),
        _ask(add_offsets_to_txn, add_offsets_to_txn.AddOffsetsToTxnRequest(TRANSACTION, 77, 0, GROUP)),
        _ask(
            txn_offset_commit, txn_offset_commit.TxnOffsetCommitRequest(TRANSACTION, GROUP, 77, 0, topics=committed), 5
        ),
        _ask(end_txn, end_txn.EndTxnRequest(TRANSACTION, 77, 0, False)),
        _ask(
            write_txn_markers,
            write_txn_markers.WriteTxnMarkersRequest([write_txn_markers.WritableTxnMarker(77, 0, False, markers)]),
        ),
        _ask(describe_transactions, describe_transactions.DescribeTransactionsRequest([TRANSACTION, "x2"])),
        _ask(list_transactions, list_transactions.ListTransactionsRequest()),
    ]


def _of_share_groups(topic_id: bytes) -> list[Question]:
    asked = [
        describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(name, [0]) for name in (EXISTING, MISSING)
    ]
    altered = [
        alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            name, [alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)]
        )
        for name in (EXISTING, MISSING)
    ]
    deleted = [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(name) for name in (EXISTING, MISSING)]
    return [
        _ask(
            share_group_heartbeat,
            share_group_heartbeat.ShareGroupHeartbeatRequest(
                GROUP, "AAAAAAAAAAAAAAAAAAAAAA", 7, subscribed_topic_names=[EXISTING]
            ),
        ),
        _ask(share_group_describe, share_group_describe.ShareGroupDescribeRequest([GROUP, "g2"])),
        _ask(
            share_fetch,
            share_fetch.ShareFetchRequest(
                GROUP,
                "AAAAAAAAAAAAAAAAAAAAAA",
                0,
                max_records=10,
                batch_size=10,
                topics=[share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])],
            ),
        ),
        _ask(
            share_acknowledge,
            share_acknowledge.ShareAcknowledgeRequest(
                GROUP,
                "AAAAAAAAAAAAAAAAAAAAAQ",
                5,
                topics=[share_acknowledge.AcknowledgeTopic(topic_id, [share_acknowledge.AcknowledgePartition(0)])],
            ),
        ),
        _ask(
            describe_share_group_offsets,
            describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
                [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(GROUP, asked)]
            ),
        ),
        _ask(
            alter_share_group_offsets,
            alter_share_group_offsets.AlterShareGroupOffsetsRequest("g4", altered),
        ),
        _ask(
            delete_share_group_offsets,
            delete_share_group_offsets.DeleteShareGroupOffsetsRequest("g4", deleted),
        ),
    ]


def _of_the_cluster() -> list[Question]:
    nobody = create_acls.AclCreation(2, "no such topic", 3, "User:nobody", "*", 3, 3)
    entity = [alter_client_quotas.EntityData("client-id", "nobody")]
    return [
        _ask(describe_cluster, describe_cluster.DescribeClusterRequest()),
        _ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest([])),
        _ask(
            alter_replica_log_dirs,
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                [
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        "/none", [alter_replica_log_dirs.AlterReplicaLogDirTopic(MISSING, [0])]
                    )
                ]
            ),
        ),
        _ask(
            elect_leaders, elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(MISSING, [0])], 10_000)
        ),
        _ask(
            alter_partition_reassignments,
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                10_000,
                topics=[
                    alter_partition_reassignments.ReassignableTopic(
                        MISSING, [alter_partition_reassignments.ReassignablePartition(0, None)]
                    )
                ],
            ),
        ),
        _ask(
            describe_quorum,
            describe_quorum.DescribeQuorumRequest(
                [describe_quorum.TopicRequest("__cluster_metadata", [describe_quorum.PartitionRequest(0)])]
            ),
        ),
        _ask(
            list_partition_reassignments,
            list_partition_reassignments.ListPartitionReassignmentsRequest(10_000, None),
        ),
        _ask(list_config_resources, list_config_resources.ListConfigResourcesRequest([16])),
        _ask(describe_client_quotas, describe_client_quotas.DescribeClientQuotasRequest([])),
        _ask(
            alter_client_quotas,
            alter_client_quotas.AlterClientQuotasRequest(
                [alter_client_quotas.EntryData(entity, [alter_client_quotas.OpData("request_percentage", 50.0)])], True
            ),
        ),
        _ask(
            describe_user_scram_credentials,
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest([]),
        ),
        _ask(
            alter_user_scram_credentials,
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                [alter_user_scram_credentials.ScramCredentialDeletion("nobody", 1)]
            ),
        ),
        _ask(describe_acls, describe_acls.DescribeAclsRequest(2, "no such topic", 3, None, None, 1, 1)),
        _ask(create_acls, create_acls.CreateAclsRequest([nobody])),
        _ask(
            delete_acls,
            delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(2, "no such topic", 3, None, None, 1, 1)]),
        ),
    ]


def refusals(response: Any, names: Mapping[bytes, str]) -> dict[str, list[int]]:
    """The authorization errors in an answer by the names of resources, and 0 for those that were served.

    `names` has the topics by id. Other errors count as served: the two brokers may be in different states.
    """
    found: dict[str, set[int]] = {}
    _collect(response, "", names, found)
    return {name: sorted(codes) for name, codes in sorted(found.items())}


def _collect(value: Any, name: str, names: Mapping[bytes, str], found: dict[str, set[int]]) -> None:
    if isinstance(value, list | tuple):
        for each in value:
            _collect(each, name, names, found)
        return
    if not isinstance(value, msgspec.Struct):
        return
    fields = {field: getattr(value, field) for field in value.__struct_fields__}
    if "config_source" in fields or str(fields.get("name", "")).startswith("__"):
        return  # a configuration, or an internal topic, which only Kafka has
    errors = [fields[field] for field in fields if field.endswith("error_code")]
    if "port" in fields and not errors:
        return  # a broker, or a listener of one
    own = next((fields[field] for field in NAMES if isinstance(fields.get(field), str) and fields[field]), None)
    if own is None and fields.get("topic_id", NO_ID) != NO_ID:
        own = names.get(fields["topic_id"], "an unknown id")
    place = own or name
    if errors or own:
        refused = {each for each in errors if each in REFUSALS}
        found.setdefault(place, set()).update(refused or {SERVED})
    for each in fields.values():
        _collect(each, place, names, found)


def is_loading(response: Any) -> bool:
    """Whether a part of the answer is an error of a coordinator that is not ready yet."""
    if isinstance(response, list):
        return any(map(is_loading, response))
    if not isinstance(response, msgspec.Struct):
        return False
    fields = {field: getattr(response, field) for field in response.__struct_fields__}
    if any(field.endswith("error_code") and fields[field] in LOADING for field in fields):
        return True
    return any(map(is_loading, fields.values()))


def asked_apis() -> set[str]:
    """The APIs with at least one question."""
    return {wire.API_TABLE[each.key].name for each in questions(NO_ID, "new")}
