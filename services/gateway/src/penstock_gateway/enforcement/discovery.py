"""The checks of the APIs by which clients find brokers, coordinators and topics."""

from typing import Any

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.kafkawire.api import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.enforcement.guard import (
    ERRORS,
    MESSAGES,
    Call,
    Checks,
    Message,
    Proceed,
    on_cluster,
    split,
    split_by_id,
)
from penstock_gateway.metadata.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS

CREATE, DESCRIBE = AclOperation.CREATE, AclOperation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
FIRST_VERSION_IDS = 12  # of Metadata; the handler refuses ids in earlier versions
FIRST_VERSION_BATCHED = 4  # of FindCoordinator (KIP-699)
SHARE = 2  # the key type of share partitions
COORDINATED = {0: GROUP, 1: ResourceType.TRANSACTIONAL_ID}  # by the key type of FindCoordinator
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def check_metadata(call: Call, request: metadata.MetadataRequest, proceed: Proceed) -> Message:
    """Hide topics that the client may not describe: from lists, and their existence from questions by name."""
    if request.topics is None or (call.version == 0 and not request.topics):
        response = await proceed(request)
        seen = [each async for each in Slices().of(response.topics) if _is_listed(call, each.name)]
        return msgspec.structs.replace(response, topics=seen)
    allowed, refused = await _split_topics(call, request.topics)
    refused += await _uncreatable(call, request, allowed)
    if not refused:
        return await proceed(request)
    answered = {answer.name for answer in refused if answer.name is not None}
    passed = [each for each in allowed if each.topic_id != NO_TOPIC_ID or each.name not in answered]
    response = await proceed(msgspec.structs.replace(request, topics=passed))
    return msgspec.structs.replace(response, topics=[*response.topics, *refused])


def _is_listed(call: Call, name: str) -> bool:
    return call.access.allows(DESCRIBE, TOPIC, name, reports=False)


async def _split_topics(
    call: Call, topics: list[metadata.MetadataRequestTopic]
) -> tuple[list[metadata.MetadataRequestTopic], list[metadata.MetadataResponseTopic]]:
    """The topics that the client may describe, and the answers for the others: with the name or the id, as asked."""
    if call.version < FIRST_VERSION_IDS:
        named, by_id = topics, []
    else:
        named = [each for each in topics if each.topic_id == NO_TOPIC_ID and each.name is not None]
        by_id = [each for each in topics if each.topic_id != NO_TOPIC_ID or each.name is None]
    allowed: list[metadata.MetadataRequestTopic] = []
    refused: list[metadata.MetadataResponseTopic] = []
    async for each in Slices().of(named):
        if call.access.allows(DESCRIBE, TOPIC, each.name or ""):
            allowed.append(each)
        else:
            refused.append(metadata.MetadataResponseTopic(REFUSED, each.name or ""))
    seen, unseen = await split_by_id(call, DESCRIBE, by_id)
    answers = [metadata.MetadataResponseTopic(error, None, topic.topic_id) for topic, error in unseen]
    return [*allowed, *seen], [*refused, *answers]


async def _uncreatable(
    call: Call, request: metadata.MetadataRequest, topics: list[metadata.MetadataRequestTopic]
) -> list[metadata.MetadataResponseTopic]:
    """The answers for topics that do not exist, if the request would create them and the client may not."""
    access = call.access
    may_create = request.allow_auto_topic_creation and call.gateway.settings.auto_create_topics
    if not may_create or access.grants(CREATE, CLUSTER):
        return []
    names = [each.name for each in topics if each.topic_id == NO_TOPIC_ID and each.name is not None]
    lacking = [name for name in dict.fromkeys(names) if not access.grants(CREATE, TOPIC, name)]
    found = await call.gateway.topics.find(lacking) if lacking else {}
    missing = [name for name in lacking if name not in found]
    return [metadata.MetadataResponseTopic(REFUSED, name) for name in missing if not access.allows(CREATE, TOPIC, name)]


async def own_metadata_operations(call: Call, request: metadata.MetadataRequest, proceed: Proceed) -> Message:
    """Replace the operations in an answer by those that the client may do."""
    response = await proceed(request)
    if request.include_topic_authorized_operations:
        topics = [_with_operations(call, each) for each in response.topics]
        response = msgspec.structs.replace(response, topics=topics)
    if request.include_cluster_authorized_operations:
        response = msgspec.structs.replace(response, cluster_authorized_operations=_cluster_operations(call))
    return response


def _with_operations(call: Call, topic: Any) -> Any:
    """A topic of an answer, with the client's operations; they are unknown without a name."""
    if topic.name is None:
        return topic
    operations = TOPIC_OPERATIONS & call.access.operations(TOPIC, topic.name)
    return msgspec.structs.replace(topic, topic_authorized_operations=operations)


def _cluster_operations(call: Call) -> int:
    return CLUSTER_OPERATIONS & call.access.operations(CLUSTER) if call.access.allows(DESCRIBE, CLUSTER) else 0


async def own_cluster_operations(call: Call, request: describe_cluster.DescribeClusterRequest, proceed: Proceed) -> Any:
    """Replace the operations in a description of the cluster by those that the client may do."""
    response = await proceed(request)
    if not request.include_cluster_authorized_operations or response.error_code:
        return response
    return msgspec.structs.replace(response, cluster_authorized_operations=_cluster_operations(call))


async def check_topic_partitions(
    call: Call, request: describe_topic_partitions.DescribeTopicPartitionsRequest, proceed: Proceed
) -> Message:
    """Ask for the visible topics by name, so that neither a page nor its cursor contains a hidden one."""
    first_name = request.cursor.topic_name if request.cursor is not None else ""
    asks_for_all = not request.topics
    if asks_for_all:
        names = [view.name for view in await call.gateway.topics.everything()]
    else:
        names = [topic.name for topic in request.topics]
    seen: list[str] = []
    hidden: list[str] = []
    async for name in Slices().of(sorted(dict.fromkeys(name for name in names if name >= first_name))):
        is_seen = call.access.allows(DESCRIBE, TOPIC, name, reports=not asks_for_all)
        (seen if is_seen else hidden).append(name)
    response = describe_topic_partitions.DescribeTopicPartitionsResponse()
    if seen:
        topics = [describe_topic_partitions.TopicRequest(name) for name in seen]
        response = await proceed(msgspec.structs.replace(request, topics=topics))
    shown = [_with_operations(call, each) for each in response.topics]
    answered = [] if asks_for_all else hidden
    refused = [describe_topic_partitions.DescribeTopicPartitionsResponseTopic(REFUSED, name) for name in answered]
    return msgspec.structs.replace(response, topics=[*shown, *refused])


async def check_coordinators(call: Call, request: find_coordinator.FindCoordinatorRequest, proceed: Proceed) -> Message:
    """Check the groups or transactional ids."""
    resource_type = COORDINATED.get(request.key_type)
    if request.key_type == SHARE and not call.access.allows(AclOperation.CLUSTER_ACTION, CLUSTER):
        return _refused_share_partitions(request)
    if resource_type is None:
        return await proceed(request)  # the handler refuses other types
    error = ERRORS[resource_type]
    if call.version < FIRST_VERSION_BATCHED:
        if call.access.allows(DESCRIBE, resource_type, request.key):
            return await proceed(request)
        return find_coordinator.FindCoordinatorResponse(
            error_code=error, error_message=MESSAGES[error], node_id=-1, port=-1
        )
    allowed, refusals = await split(call, request.coordinator_keys, lambda key: (DESCRIBE, resource_type, key))
    if not refusals:
        return await proceed(request)
    refused = [find_coordinator.Coordinator(key, -1, "", -1, error, MESSAGES[error]) for key, error in refusals]
    found: list[find_coordinator.Coordinator] = []
    if allowed:
        found = (await proceed(msgspec.structs.replace(request, coordinator_keys=allowed))).coordinators
    return find_coordinator.FindCoordinatorResponse(coordinators=[*found, *refused])


def _refused_share_partitions(request: find_coordinator.FindCoordinatorRequest) -> Message:
    error = ERRORS[CLUSTER]
    refused = find_coordinator.Coordinator("", -1, "", -1, error, MESSAGES[error])
    return find_coordinator.FindCoordinatorResponse(
        error_code=error,
        coordinators=[msgspec.structs.replace(refused, key=key) for key in request.coordinator_keys],
    )


def _refused_log_dirs(version: int, request: describe_log_dirs.DescribeLogDirsRequest, error: ErrorCode) -> Message:
    return describe_log_dirs.DescribeLogDirsResponse(error_code=error)


def _refused_quorum(version: int, request: describe_quorum.DescribeQuorumRequest, error: ErrorCode) -> Message:
    return describe_quorum.DescribeQuorumResponse(error_code=error, error_message=MESSAGES[error])


CHECKS: Checks = {
    api_versions.API.key: (),
    metadata.API.key: (check_metadata, own_metadata_operations),
    describe_topic_partitions.API.key: (check_topic_partitions,),
    describe_cluster.API.key: (own_cluster_operations,),
    describe_log_dirs.API.key: (on_cluster(DESCRIBE, _refused_log_dirs),),
    describe_quorum.API.key: (on_cluster(DESCRIBE, _refused_quorum),),
    find_coordinator.API.key: (check_coordinators,),
}
