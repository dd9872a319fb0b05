"""The limits of the telemetry of clients in a gateway, each with its reason."""

import msgspec

MIB = 1024 * 1024


class TelemetryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many clients have a state here, and how much one push may contain."""

    # Client instances whose last requests are remembered; about 3 MB. Beyond it the idlest is removed, as in Kafka.
    instances_max: int = 10_000
    push_bytes_max: int = MIB  # as the client sends it; Kafka's telemetry.max.bytes
