"""Answers the two requests of clients' telemetry (KIP-714)."""

from typing import Protocol

from penstock.kafkawire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.kafkawire.api.push_telemetry import PushTelemetryRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.schema import NO_UUID
from penstock.runtime.clock import Clock, Entropy
from penstock_gateway.kafka.client import Client
from penstock_gateway.telemetry.client_instances import ACCEPTED_CODECS, ClientInstances
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.subscriptions import Wanted, union

RESERVED_IDS = (NO_UUID, bytes(15) + b"\1")  # as Kafka: the second one is that of the metadata topic
_VERSION_4, _VARIANT_1 = 0x40, 0x80


class Telemetry:
    """The telemetry of this gateway's clients."""

    def __init__(self, clock: Clock, entropy: Entropy, limits: TelemetryLimits) -> None:
        self._entropy = entropy
        self._limits = limits
        self._instances = ClientInstances(clock.monotonic_s, limits)

    def subscriptions(
        self, client: Client, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """The subscription of a client instance; one without an id gets one."""
        instance_id = request.client_instance_id
        if instance_id == NO_UUID:
            instance_id = self._new_id()
        instance = self._instances.find(client, instance_id, self._wanted(client, instance_id))
        error = self._instances.ask(instance)
        if error:
            return GetTelemetrySubscriptionsResponse(error_code=error)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(ACCEPTED_CODECS),
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._limits.push_bytes_max,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    async def push(self, client: Client, request: PushTelemetryRequest) -> ErrorCode:
        """Take the metrics of a client instance."""
        if request.client_instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        wanted = self._wanted(client, request.client_instance_id)
        return self._instances.push(self._instances.find(client, request.client_instance_id, wanted), request)

    def _wanted(self, client: Client, instance_id: bytes) -> Wanted:
        return union(())

    def _new_id(self) -> bytes:
        """A random UUID, of version 4."""
        data = bytearray(self._entropy.take(16))
        data[6] = data[6] & 0x0F | _VERSION_4
        data[8] = data[8] & 0x3F | _VARIANT_1
        return bytes(data)


class HasTelemetry(Protocol):
    @property
    def telemetry(self) -> Telemetry: ...
