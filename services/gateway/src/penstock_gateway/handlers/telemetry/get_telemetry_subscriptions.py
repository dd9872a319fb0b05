"""GetTelemetrySubscriptions: the metrics that the client is to push, and how often (KIP-714)."""

from penstock.kafkawire.api.get_telemetry_subscriptions import (
    API as API,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock_gateway.kafka.client import Client
from penstock_gateway.telemetry.telemetry import HasTelemetry


async def handle(
    gateway: HasTelemetry, client: Client, version: int, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    return await gateway.telemetry.subscription(client, request)
