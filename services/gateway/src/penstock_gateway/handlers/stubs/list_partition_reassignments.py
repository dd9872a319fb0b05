"""ListPartitionReassignments: none is ever under way (KIP-455)."""

from penstock.kafkawire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock_gateway.context import Client, Gateway


async def handle(
    gateway: Gateway, client: Client, version: int, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
