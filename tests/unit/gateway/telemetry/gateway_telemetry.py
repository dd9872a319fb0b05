"""A client whose telemetry a test sends to a gateway."""

from typing import Any

from penstock.kafkawire.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.kafkawire.api.push_telemetry import PushTelemetryRequest
from penstock.kafkawire.schema import NO_UUID
from penstock_gateway.kafka.client import Client
from tests.unit.gateway.gateway_fakes import World, new_client
from tests.unit.gateway.gateway_wire import ask

GET, PUSH = 71, 72


class Reporter:
    """One client instance on one connection."""

    def __init__(self, world: World, client: Client | None = None, instance_id: bytes = NO_UUID) -> None:
        self.world = world
        self.client = client or new_client()
        self.instance_id = instance_id
        self.subscription_id = 0

    async def get(self) -> Any:
        """Ask for the subscription, and take over its ids."""
        request = GetTelemetrySubscriptionsRequest(self.instance_id)
        response = await ask(self.world, GET, 0, request, self.client)
        if not response.error_code:
            self.instance_id, self.subscription_id = response.client_instance_id, response.subscription_id
        return response

    async def push(self, metrics: bytes = b"", **fields: Any) -> int:
        """Push metrics; the error of the answer."""
        given: dict[str, Any] = {"subscription_id": self.subscription_id} | fields
        request = PushTelemetryRequest(client_instance_id=self.instance_id, metrics=metrics, **given)
        error: int = (await ask(self.world, PUSH, 0, request, self.client)).error_code
        return error
