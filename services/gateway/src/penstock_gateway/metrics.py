"""What a gateway counts and times for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.contracts.commands import Verdict
from penstock.kafkawire.api import API_TABLE

REQUEST_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class GatewayMetrics:
    """The gateway's own numbers; other parts register theirs in the same `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        seconds = Histogram(
            "penstock_gateway_request_seconds",
            "Time from a request's arrival to its answer.",
            ["api"],
            buckets=REQUEST_SECONDS_BUCKETS,
            registry=registry,
        )
        self.request_seconds = {key: seconds.labels(api.name) for key, api in API_TABLE.items()}
        self.connections = Gauge("penstock_gateway_connections", "Kafka connections now.", registry=registry)
        self.connections_closed = Counter(
            "penstock_gateway_connections_closed",
            "Connections closed by the gateway.",
            ["cause"],
            registry=registry,
        )
        self.unsent_bytes = Gauge(
            "penstock_gateway_unsent_bytes", "Bytes of answers that clients have not taken yet.", registry=registry
        )
        self.held_bytes = Gauge(
            "penstock_gateway_held_bytes", "Bytes received from clients and not answered.", registry=registry
        )
        self.produced_bytes = Counter(
            "penstock_gateway_produced_bytes", "Record bytes handed to flushers.", registry=registry
        )
        self.batches_rejected = Counter(
            "penstock_gateway_batches_refused", "Record batches refused.", ["error"], registry=registry
        )
        self.throttled = Counter(
            "penstock_gateway_throttled",
            "Answers that told clients to wait, by their quota.",
            ["quota"],
            registry=registry,
        )
        self._add_share_groups(registry)
        self.flush_messages = Counter(
            "penstock_gateway_flush_messages", "Messages sent to flushers.", registry=registry
        )
        self.flush_bytes = Counter(
            "penstock_gateway_flush_bytes",
            "Bytes sent to flushers, by the flusher's zone.",
            ["zone"],
            registry=registry,
        )
        self.zone_fallbacks = Counter(
            "penstock_gateway_zone_fallbacks",
            "Connections that went to another zone's flusher because the gateway's has none.",
            registry=registry,
        )

    def _add_share_groups(self, registry: CollectorRegistry) -> None:
        """What members of share groups get, and what they say became of it."""
        acquired = Counter(
            "penstock_gateway_share_acquired_records",
            "Records given to members of share groups, for the first time or again.",
            ["delivery"],
            registry=registry,
        )
        self.share_acquired = {
            is_again: acquired.labels("again" if is_again else "first") for is_again in (False, True)
        }
        acknowledged = Counter(
            "penstock_gateway_share_acknowledged_records",
            "Records of share groups of which members said what became of them.",
            ["kind"],
            registry=registry,
        )
        self.share_acknowledged = {each: acknowledged.labels(each.name.lower()) for each in Verdict}
        self.share_rejected = Counter(
            "penstock_gateway_share_refused_acknowledgements",
            "Partitions of which a member's acknowledgements were refused, by error.",
            ["error"],
            registry=registry,
        )
