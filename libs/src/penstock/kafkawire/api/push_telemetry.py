"""PushTelemetry: metrics of a client, as MetricsData of OpenTelemetry in protobuf (KIP-714)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Bool, Bytes, Int8, Int16, Int32, Uuid


class PushTelemetryRequest(msgspec.Struct, frozen=True, gc=False):
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    # The last push of this client.
    terminating: Bool = False
    # 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


API = Api(
    key=72,
    name="PushTelemetry",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=PushTelemetryRequest,
    response=PushTelemetryResponse,
)
