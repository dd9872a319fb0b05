"""ListPartitionReassignments: none is ever under way (KIP-455)."""

from gateway.context import Client, Gateway
from penstock.kafkawire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    gateway: Gateway, client: Client, version: int, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
