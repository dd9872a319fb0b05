"""AlterReplicaLogDirs: accepts only the one log directory that exists, and moves nothing."""

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api.alter_replica_log_dirs import (
    API as API,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.handlers.discovery.describe_log_dirs import LOG_DIR
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasTopics


async def handle(
    gateway: HasTopics, client: Client, version: int, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    slices = Slices()
    names = {
        topic.name
        async for each in slices.of(request.dirs)
        async for topic in slices.of(each.topics)
        if is_legal_topic_name(topic.name)
    }
    found: dict[str, TopicView] = {}
    failure = ErrorCode.NONE
    try:
        found = await gateway.topics.find(sorted(names))
    except Unavailable:
        failure = ADMINISTRATION_UNAVAILABLE
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name,
                [
                    AlterReplicaLogDirPartitionResult(index, failure or _error(each.path, found.get(topic.name), index))
                    async for index in slices.of(topic.partitions)
                ],
            )
            async for each in slices.of(request.dirs)
            async for topic in slices.of(each.topics)
        ]
    )


def _error(path: str, topic: TopicView | None, index: int) -> ErrorCode:
    if path != LOG_DIR:
        return ErrorCode.LOG_DIR_NOT_FOUND
    is_there = topic is not None and 0 <= index < topic.partitions
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
