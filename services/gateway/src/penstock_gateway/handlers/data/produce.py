"""Produce: checks each batch by its header, sends valid ones to a flusher, and answers after the commit.

The work is in `penstock_gateway.produce.produce_service`.
"""

from penstock.kafkawire.api.produce import API as API, ProduceRequest, ProduceResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.produce.produce_service import HasProduceService


async def handle(
    gateway: HasProduceService, client: Client, version: int, request: ProduceRequest
) -> ProduceResponse | None:
    return await gateway.produce_service.produce(client, version, request)
