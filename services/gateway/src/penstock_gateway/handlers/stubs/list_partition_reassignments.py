"""ListPartitionReassignments: lists no reassignment, because none is ever in progress (KIP-455)."""

from penstock.kafkawire.api.list_partition_reassignments import (
    API as API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock_gateway.kafka.client import Client


async def handle(
    gateway: object, client: Client, version: int, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
