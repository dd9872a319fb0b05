"""AlterPartitionReassignments: always rejected, because partitions are not stored on brokers (KIP-455)."""

from penstock.kafkawire.api.alter_partition_reassignments import (
    API as API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasTopics
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, Located, locate


async def handle(
    gateway: HasTopics, client: Client, version: int, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    asked = (topic.name for topic in request.topics)
    slices = Slices()
    located = await locate(gateway.topics, asked, unavailable=ADMINISTRATION_UNAVAILABLE)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                topic.name, [_result(located, topic.name, partition) async for partition in slices.of(topic.partitions)]
            )
            async for topic in slices.of(request.topics)
        ],
    )


def _result(located: Located, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    found = located.partition(topic, asked.partition_index, NO_EPOCH)
    if isinstance(found, ErrorCode):
        return ReassignablePartitionResponse(asked.partition_index, found, None)
    if asked.replicas is None:
        error, message = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress"
    else:
        error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        message = "records are in the object store, and every broker leads every partition: replicas cannot be assigned"
    return ReassignablePartitionResponse(asked.partition_index, error, message)
