"""ElectLeaders: no election is ever needed, because every gateway leads every partition (KIP-460)."""

from penstock.kafkawire.api.elect_leaders import (
    API as API,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasTopics
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, Located, locate

ELECTION_TYPES = range(2)  # the preferred leader, or any


async def handle(
    gateway: HasTopics, client: Client, version: int, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if request.election_type not in ELECTION_TYPES:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.topic_partitions is None:  # all partitions: Kafka leaves out those that need no election
        return ElectLeadersResponse()
    asked = (topic.topic for topic in request.topic_partitions)
    slices = Slices()
    located = await locate(gateway.topics, asked, unavailable=ADMINISTRATION_UNAVAILABLE)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic.topic, [_result(located, topic.topic, index) async for index in slices.of(topic.partitions)]
            )
            async for topic in slices.of(request.topic_partitions)
        ]
    )


def _result(located: Located, topic: str, partition: int) -> PartitionResult:
    found = located.partition(topic, partition, NO_EPOCH)
    if isinstance(found, ErrorCode):
        return PartitionResult(partition, found, None)
    return PartitionResult(partition, ErrorCode.ELECTION_NOT_NEEDED, "every broker leads every partition")
