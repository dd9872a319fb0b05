"""GetTelemetrySubscriptions: the metrics that a client sends to the cluster, and how often (KIP-714)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(msgspec.Struct, frozen=True, gc=False):
    # Zero in the first request of a client: the broker gives it an id.
    client_instance_id: Uuid = NO_UUID


class GetTelemetrySubscriptionsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = NO_UUID
    # Changes with the metrics and the interval. Each push names it.
    subscription_id: Int32 = 0
    # By preference; the numbers are those of the codecs of record batches.
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    # Prefixes of names. Empty: no metrics. "*" (Java) or "" means all.
    requested_metrics: list[String] = []


API = Api(
    key=71,
    name="GetTelemetrySubscriptions",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=GetTelemetrySubscriptionsRequest,
    response=GetTelemetrySubscriptionsResponse,
)
