"""Answers the two requests of clients' telemetry (KIP-714)."""

import asyncio
from typing import Protocol

from penstock.contracts.configs.client_metrics import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    SOURCE_ADDRESS,
    SOURCE_PORT,
)
from penstock.kafkawire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.kafkawire.api.push_telemetry import PushTelemetryRequest
from penstock.kafkawire.compression import decompress
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError, OversizeError
from penstock.kafkawire.schema import NO_UUID
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.concurrency.ending import to_the_end
from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.state_copy import Sequencers
from penstock_gateway.telemetry.client_instances import ACCEPTED_CODECS, ClientInstances, Instance
from penstock_gateway.telemetry.client_metrics import ClientMetrics, Summary, add_point, id_text
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.otlp import decode_points
from penstock_gateway.telemetry.subscription_cache import SubscriptionCache
from penstock_gateway.telemetry.subscriptions import Wanted

RESERVED_IDS = (NO_UUID, bytes(15) + b"\1")  # as Kafka: the second one is that of the metadata topic
_VERSION_4, _VARIANT_1 = 0x40, 0x80


class Telemetry:
    """The telemetry of this gateway's clients."""

    def __init__(
        self,
        *,
        sequencer: Sequencers,
        clock: Clock,
        entropy: Entropy,
        metrics: GatewayMetrics,
        limits: TelemetryLimits,
    ) -> None:
        self.subscriptions = SubscriptionCache(sequencer)
        self._entropy = entropy
        self._limits = limits
        self._instances = ClientInstances(clock.monotonic_s, limits)
        self._shown = ClientMetrics(metrics, clock.monotonic_s, limits)
        self._large_push = asyncio.Lock()  # so that only one is decoded at a time
        self._pushes = metrics.telemetry_pushes

    @property
    def is_advertised(self) -> bool:
        """Whether ApiVersions lists the two APIs: librdkafka logs a line for each client that uses them."""
        return not self.subscriptions.is_empty

    async def subscription(
        self, client: Client, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """The subscription of a client instance; one without an id gets one."""
        instance_id = request.client_instance_id
        if instance_id == NO_UUID:
            instance_id = self._new_id()
        instance = self._instances.find(client, instance_id, await self._wanted(client, instance_id))
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
        error = await self._push(client, request)
        self._pushes.labels(error.name).inc()
        return error

    async def _push(self, client: Client, request: PushTelemetryRequest) -> ErrorCode:
        instance_id = request.client_instance_id
        if instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instances.find(client, instance_id, await self._wanted(client, instance_id))
        error = self._instances.push(instance, request)
        if error or not request.metrics or not instance.wanted.metrics:
            return error
        try:
            summaries = await self._decode(request)
        except OversizeError:
            return self._failed(instance, ErrorCode.TELEMETRY_TOO_LARGE)
        except DecodeError:
            return self._failed(instance, ErrorCode.INVALID_RECORD)
        self._shown.record(instance_id, client.client_id, instance.interval_s, summaries)
        return ErrorCode.NONE

    async def _decode(self, request: PushTelemetryRequest) -> dict[str, Summary]:
        try:
            return self._summaries(request, self._limits.decoded_at_once_max)
        except OversizeError:
            async with self._large_push:
                return await to_the_end(asyncio.to_thread(self._summaries, request, self._limits.plain_bytes_max))

    def _summaries(self, request: PushTelemetryRequest, plain_bytes_max: int) -> dict[str, Summary]:
        """Decode everything before anything counts: a damaged push changes nothing."""
        plain = decompress(request.metrics, request.compression_type, plain_bytes_max)
        if len(plain) > plain_bytes_max:
            raise OversizeError(f"{len(plain)} bytes of metrics")
        summaries: dict[str, Summary] = {}
        for point in decode_points(plain, self._limits.fields_max):
            add_point(summaries, point, self._limits.metric_name_length_max)
        return summaries

    @staticmethod
    def _failed(instance: Instance, error: ErrorCode) -> ErrorCode:
        instance.last_error = error
        return error

    async def _wanted(self, client: Client, instance_id: bytes) -> Wanted:
        length_max = self._limits.attribute_length_max
        attributes = {
            CLIENT_INSTANCE_ID: id_text(instance_id),
            CLIENT_ID: client.client_id[:length_max],
            SOFTWARE_NAME: client.software_name[:length_max],
            SOFTWARE_VERSION: client.software_version[:length_max],
            SOURCE_ADDRESS: client.host,
            SOURCE_PORT: str(client.port),
        }
        return await self.subscriptions.wanted(attributes, self._limits.known_timeout_s)

    def _new_id(self) -> bytes:
        """A random UUID, of version 4."""
        data = bytearray(self._entropy.take(16))
        data[6] = data[6] & 0x0F | _VERSION_4
        data[8] = data[8] & 0x3F | _VARIANT_1
        return bytes(data)


class HasTelemetry(Protocol):
    @property
    def telemetry(self) -> Telemetry: ...
