"""Keeps record bytes within pools: refuses clients of another pool, and the kind of clients that a pool does not serve.

Clients do not come here if they follow Metadata, which names the gateways of their pool only (ADR 0060).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.kafkawire.api import fetch, list_offsets, produce, share_fetch
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.records import refused_fetch
from penstock_gateway.handlers import Handler
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.kafka.served_clients import ServedClients

ACKS_NONE = 0
REFUSED = "the gateways of this pool serve no {}; name another pool in the client id, such as `pool=default`"
WITH_RECORDS = (produce.API.key, fetch.API.key, list_offsets.API.key, share_fetch.API.key)

Refuse = Callable[[Any], Any]  # the answer to a request


def within_pool(handlers: Mapping[int, Handler], served: ServedClients) -> dict[int, Handler]:
    """The handlers, with those of record bytes for clients of the gateway's pool only."""
    refused: dict[int, Refuse] = {}
    if served is ServedClients.PRODUCERS:
        refused = {fetch.API.key: _refused_fetch, share_fetch.API.key: _refused_share_fetch}
    elif served is ServedClients.CONSUMERS:
        refused = {produce.API.key: _refused_produce}
    return {
        key: partial(_handle, handler, refused.get(key)) if key in WITH_RECORDS else handler
        for key, handler in handlers.items()
    }


async def _handle(
    handler: Handler, refuse: Refuse | None, gateway: Any, client: Client, version: int, request: Any
) -> Any:
    pool = gateway.settings.pool
    if client.pool != pool:
        raise CloseConnection(f"the client is of the pool {client.pool!r}, and this gateway of {pool!r}")
    return await handler(gateway, client, version, request) if refuse is None else refuse(request)


def _refused_fetch(request: fetch.FetchRequest) -> fetch.FetchResponse:
    """Of the codes of a partition, this is the one that all clients report and do not retry."""
    return fetch.FetchResponse(
        responses=[refused_fetch(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in request.topics]
    )


def _refused_share_fetch(request: share_fetch.ShareFetchRequest) -> share_fetch.ShareFetchResponse:
    return share_fetch.ShareFetchResponse(
        error_code=ErrorCode.POLICY_VIOLATION, error_message=REFUSED.format("consumers")
    )


def _refused_produce(request: produce.ProduceRequest) -> produce.ProduceResponse:
    message = REFUSED.format("producers")
    if request.acks == ACKS_NONE:
        raise CloseConnection(message)
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [
                    produce.PartitionProduceResponse(data.index, ErrorCode.POLICY_VIOLATION, -1, error_message=message)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
