"""PushTelemetry: takes the metrics of a client (KIP-714)."""

from penstock.kafkawire.api.push_telemetry import API as API, PushTelemetryRequest, PushTelemetryResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.telemetry.telemetry import HasTelemetry


async def handle(
    gateway: HasTelemetry, client: Client, version: int, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=await gateway.telemetry.push(client, request))
