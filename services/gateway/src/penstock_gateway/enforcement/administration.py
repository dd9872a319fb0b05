"""The checks of the APIs by which administrators change topics, configurations, quotas, users and access control."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts.acls import CLUSTER_NAME, AclOperation, ResourceType
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.groups import with_error_and_message
from penstock_gateway.enforcement.guard import (
    MESSAGES,
    Call,
    Check,
    Checks,
    Message,
    Proceed,
    Resource,
    on_cluster,
    on_items,
)
from penstock_gateway.enforcement.records import topic_named

CREATE, DELETE, ALTER, DESCRIBE = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
FIRST_VERSION_CREATED_CONFIGS = 5  # of CreateTopics (KIP-525)
FIRST_VERSION_IDS = 6  # of DeleteTopics (KIP-516)
NOT_SHOWN = -1

# By the types of resources with configurations. Those of brokers, their loggers and client metrics are the cluster's.
CONFIGURED = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: ResourceType.GROUP}


# Topics


async def check_new_topics(call: Call, request: create_topics.CreateTopicsRequest, proceed: Proceed) -> Message:
    """Check the topics, unless the client may create any; then hide configurations that it may not see."""
    check = _show_created if call.access.grants(CREATE, CLUSTER) else _check_created
    response = await check(call, request, proceed)
    if call.version < FIRST_VERSION_CREATED_CONFIGS:
        return response
    topics = [each if each.error_code else _visible_configs(call, each) for each in response.topics]
    return msgspec.structs.replace(response, topics=topics)


async def _show_created(call: Call, request: Message, proceed: Proceed) -> Message:
    return await proceed(request)


_check_created = on_items(
    "topics",
    topic_named(CREATE),
    "topics",
    lambda topic, error: create_topics.CreatableTopicResult(
        topic.name, error_code=error, error_message="Authorization failed."
    ),
)


def _visible_configs(call: Call, topic: create_topics.CreatableTopicResult) -> create_topics.CreatableTopicResult:
    if call.access.allows(DESCRIBE_CONFIGS, TOPIC, topic.name, reports=False):
        return topic
    return msgspec.structs.replace(
        topic,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=NOT_SHOWN,
        replication_factor=NOT_SHOWN,
        configs=[],
    )


async def check_deletions(call: Call, request: delete_topics.DeleteTopicsRequest, proceed: Proceed) -> Message:
    """Check the topics of a DeleteTopics, unless the client may delete any."""
    if call.access.grants(DELETE, CLUSTER):
        return await proceed(request)
    is_by_state = call.version >= FIRST_VERSION_IDS
    states = request.topics if is_by_state else [delete_topics.DeleteTopicState(name) for name in request.topic_names]
    topics = call.gateway.topics
    by_id = await topics.find_ids([each.topic_id for each in states if each.name is None])
    allowed: list[delete_topics.DeleteTopicState] = []
    refused: list[delete_topics.DeletableTopicResult] = []
    for state in states:
        answer = await _refused_deletion(call, state, by_id)
        if answer is None:
            allowed.append(state)
        else:
            refused.append(answer)
    if not refused:
        return await proceed(request)
    response = delete_topics.DeleteTopicsResponse()
    if allowed:
        passed = {"topics": allowed} if is_by_state else {"topic_names": [each.name for each in allowed]}
        response = await proceed(msgspec.structs.replace(request, **passed))
    return msgspec.structs.replace(response, responses=[*response.responses, *refused])


async def _refused_deletion(
    call: Call, state: delete_topics.DeleteTopicState, by_id: dict[bytes, TopicView]
) -> delete_topics.DeletableTopicResult | None:
    """The answer for a topic that the client may not delete; None for the others, and for invalid items."""
    if (state.name is None) == (state.topic_id == NO_TOPIC_ID):
        return None  # both or neither: the handler refuses it
    name = state.name
    if name is None:
        view = by_id.get(state.topic_id)
        if view is None:
            return _deletion_error(None, state.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        name = view.name
    if call.access.allows(DELETE, TOPIC, name):
        return None
    is_seen = call.access.grants(DESCRIBE, TOPIC, name)
    if state.name is None:
        return _deletion_error(name if is_seen else None, state.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if is_seen and name not in await call.gateway.topics.find([name]):
        return _deletion_error(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _deletion_error(name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _deletion_error(name: str | None, topic_id: bytes, error: ErrorCode) -> delete_topics.DeletableTopicResult:
    return delete_topics.DeletableTopicResult(name, topic_id, error, MESSAGES.get(error))


def _refused_partitions(topic: create_partitions.CreatePartitionsTopic, error: ErrorCode) -> Message:
    return create_partitions.CreatePartitionsTopicResult(topic.name, error, MESSAGES[error])


# Configurations


def configured(operation: AclOperation) -> Callable[[Any], Resource | None]:
    """The need of an item that names a resource with configurations; the handler refuses other types."""

    def needed(item: Message) -> Resource | None:
        resource_type = CONFIGURED.get(item.resource_type)
        if resource_type is None:
            return None
        return operation, resource_type, CLUSTER_NAME if resource_type is CLUSTER else item.resource_name

    return needed


def _on_configs(operation: AclOperation, results: str, result: type[msgspec.Struct]) -> Check:
    def refused(item: Message, error: ErrorCode) -> Message:
        return result(
            error_code=error,
            error_message=MESSAGES[error],
            resource_type=item.resource_type,
            resource_name=item.resource_name,
        )

    return on_items("resources", configured(operation), results, refused)


# The cluster: all answers are errors, in the shape that each API has for them.


def _refused_quotas(version: int, request: alter_client_quotas.AlterClientQuotasRequest, error: ErrorCode) -> Message:
    entries = [
        alter_client_quotas.EntryResult(
            error,
            MESSAGES[error],
            [alter_client_quotas.EntityData(part.entity_type, part.entity_name) for part in entry.entity],
        )
        for entry in request.entries
    ]
    return alter_client_quotas.AlterClientQuotasResponse(entries=entries)


def _refused_quota_list(version: int, request: Message, error: ErrorCode) -> Message:
    return describe_client_quotas.DescribeClientQuotasResponse(
        error_code=error, error_message=MESSAGES[error], entries=None
    )


def _refused_elections(version: int, request: elect_leaders.ElectLeadersRequest, error: ErrorCode) -> Message:
    results = [
        elect_leaders.ReplicaElectionResult(
            topic.topic, [elect_leaders.PartitionResult(number, error, MESSAGES[error]) for number in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return elect_leaders.ElectLeadersResponse(error_code=error, replica_election_results=results)


def _refused_moves(
    version: int, request: alter_replica_log_dirs.AlterReplicaLogDirsRequest, error: ErrorCode
) -> Message:
    results = [
        alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
            topic.name,
            [alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(number, error) for number in topic.partitions],
        )
        for directory in request.dirs
        for topic in directory.topics
    ]
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(results=results)


def _refused_reassignments(
    version: int, request: alter_partition_reassignments.AlterPartitionReassignmentsRequest, error: ErrorCode
) -> Message:
    responses = [
        alter_partition_reassignments.ReassignableTopicResponse(
            topic.name,
            [
                alter_partition_reassignments.ReassignablePartitionResponse(
                    each.partition_index, error, MESSAGES[error]
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_code=error, error_message=MESSAGES[error], responses=responses
    )


def _refused_bindings(version: int, request: create_acls.CreateAclsRequest, error: ErrorCode) -> Message:
    refused = create_acls.AclCreationResult(error, MESSAGES[error])
    return create_acls.CreateAclsResponse(results=[refused] * len(request.creations))


def _refused_filters(version: int, request: delete_acls.DeleteAclsRequest, error: ErrorCode) -> Message:
    refused = delete_acls.DeleteAclsFilterResult(error, MESSAGES[error])
    return delete_acls.DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _refused_credentials(
    version: int, request: alter_user_scram_credentials.AlterUserScramCredentialsRequest, error: ErrorCode
) -> Message:
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(name, error, MESSAGES[error])
            for name in dict.fromkeys(names)
        ]
    )


def _refused_resources(version: int, request: Message, error: ErrorCode) -> Message:
    return list_config_resources.ListConfigResourcesResponse(error_code=error)


CHECKS: Checks = {
    create_topics.API.key: (check_new_topics,),
    delete_topics.API.key: (check_deletions,),
    create_partitions.API.key: (on_items("topics", topic_named(ALTER), "results", _refused_partitions),),
    describe_configs.API.key: (_on_configs(DESCRIBE_CONFIGS, "results", describe_configs.DescribeConfigsResult),),
    alter_configs.API.key: (_on_configs(ALTER_CONFIGS, "responses", alter_configs.AlterConfigsResourceResponse),),
    incremental_alter_configs.API.key: (
        _on_configs(ALTER_CONFIGS, "responses", incremental_alter_configs.AlterConfigsResourceResponse),
    ),
    list_config_resources.API.key: (on_cluster(DESCRIBE_CONFIGS, _refused_resources),),
    describe_client_quotas.API.key: (on_cluster(DESCRIBE_CONFIGS, _refused_quota_list),),
    alter_client_quotas.API.key: (on_cluster(ALTER_CONFIGS, _refused_quotas),),
    elect_leaders.API.key: (on_cluster(ALTER, _refused_elections),),
    alter_replica_log_dirs.API.key: (on_cluster(ALTER, _refused_moves),),
    alter_partition_reassignments.API.key: (on_cluster(ALTER, _refused_reassignments),),
    list_partition_reassignments.API.key: (
        on_cluster(DESCRIBE, with_error_and_message(list_partition_reassignments.ListPartitionReassignmentsResponse)),
    ),
    describe_user_scram_credentials.API.key: (
        on_cluster(
            DESCRIBE, with_error_and_message(describe_user_scram_credentials.DescribeUserScramCredentialsResponse)
        ),
    ),
    alter_user_scram_credentials.API.key: (on_cluster(ALTER, _refused_credentials),),
    describe_acls.API.key: (on_cluster(DESCRIBE, with_error_and_message(describe_acls.DescribeAclsResponse)),),
    create_acls.API.key: (on_cluster(ALTER, _refused_bindings),),
    delete_acls.API.key: (on_cluster(ALTER, _refused_filters),),
}
