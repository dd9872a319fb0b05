"""The limits of the telemetry of clients in a gateway, each with its reason."""

import msgspec

KIB, MIB = 1024, 1024 * 1024


class TelemetryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many clients have a state here, how much one push may contain, and how many metrics are shown."""

    # Client instances whose last requests are remembered; about 3 MB. Beyond it the idlest is removed, as in Kafka.
    instances_max: int = 10_000
    push_bytes_max: int = MIB  # as the client sends it; Kafka's telemetry.max.bytes
    plain_bytes_max: int = 4 * MIB  # decompressed: a consumer of 10,000 partitions needs 2 MiB
    # So many decompressed bytes are decoded in the event loop, in at most 10 ms. A thread decodes more, one at a time.
    decoded_at_once_max: int = 16 * KIB
    fields_max: int = 100_000  # of protobuf in one push: 0.2 s of work, or 20,000 numbers
    attribute_length_max: int = 255  # characters of an attribute that patterns are matched with: some 50 microseconds
    known_timeout_s: float = 2.0  # after the start of a gateway, until it knows the subscriptions
    # Prometheus stores each series, and a scrape stops the event loop for 8 microseconds per series.
    clients_max: int = 1_000  # clients with metrics
    metrics_max: int = 500  # different names; a Java consumer has some 150, a Java producer some 100
    series_max: int = 5_000  # a metric of a client is one series; some 50 Java clients with all their metrics
    kept_s_min: float = 60.0  # after the last push of a client, so that a scrape in each minute sees it, as Kafka
    metric_name_length_max: int = 128
    client_id_length_max: int = 128
