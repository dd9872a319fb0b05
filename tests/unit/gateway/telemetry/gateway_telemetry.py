"""A client whose telemetry a test sends to a gateway."""

from typing import Any

from penstock.contracts.commands import AlterClientMetrics, ConfigChange, ConfigOperation, Done
from penstock.contracts.levels import CLIENT_METRICS_LEVEL
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


async def subscribe(world: World, name: str = "s", **configs: str) -> None:
    """Change a subscription, and let the gateway hear of it."""
    world.sequencer.seen_level = CLIENT_METRICS_LEVEL
    changes = [
        ConfigChange(each.replace("_", "."), ConfigOperation.SET if value else ConfigOperation.DELETE, value)
        for each, value in configs.items()
    ]
    assert world.sequencer.apply(AlterClientMetrics(world.clock.now_ms(), name, changes)) == Done()
    world.gateway.telemetry.subscriptions.record(world.sequencer.machine.metrics_altered_sequence)
    await world.gateway.telemetry.subscriptions.refresh()
