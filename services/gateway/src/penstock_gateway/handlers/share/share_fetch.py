"""ShareFetch: takes acknowledgements of a share group member, and lets it acquire more records (KIP-932).

The work is in `penstock_gateway.share.fetcher`.
"""

from typing import Protocol

from penstock.kafkawire.api.share_fetch import API as API, ShareFetchRequest, ShareFetchResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.feature_levels import HasShareGroupLevel, share_groups_error
from penstock_gateway.share.fetcher import HasShareFetcher


class Needs(HasShareGroupLevel, HasShareFetcher, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: ShareFetchRequest) -> ShareFetchResponse:
    error = share_groups_error(gateway)
    return (
        ShareFetchResponse(error_code=error) if error else await gateway.share_fetcher.fetch(client, version, request)
    )
