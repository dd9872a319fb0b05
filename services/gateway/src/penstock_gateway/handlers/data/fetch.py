"""Fetch: reads batches of several partitions, and waits for new ones if the client asks for it (KIP-74, KIP-227).

The work is in `penstock_gateway.fetch.fetcher`.
"""

from penstock.kafkawire.api.fetch import API as API, FetchRequest, FetchResponse
from penstock_gateway.fetch.fetcher import HasFetcher
from penstock_gateway.kafka.client import Client


async def handle(gateway: HasFetcher, client: Client, version: int, request: FetchRequest) -> FetchResponse:
    return await gateway.fetcher.fetch(client, version, request)
