"""The metrics of a gateway."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.contracts.commands import AcknowledgeType
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.api.fetch import API as FETCH
from penstock.kafkawire.api.produce import API as PRODUCE
from penstock_gateway.topic_bytes import TOPICS_MAX, TopicBytes

REQUEST_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _ByApi(dict[int, Histogram]):
    """The histogram of each API by its key, from the first request on: a gateway is rarely asked for most of them."""

    def __init__(self, seconds: Histogram) -> None:
        super().__init__()
        self._seconds = seconds
        for api in (PRODUCE, FETCH):  # rates of these begin at zero
            self[api.key] = self.__missing__(api.key)

    def __missing__(self, key: int) -> Histogram:
        found = self[key] = self._seconds.labels(API_TABLE[key].name)
        return found


class _ByVersion(dict[tuple[int, int], Counter]):
    """The counter of each API and version, from the first request on."""

    def __init__(self, requests: Counter) -> None:
        super().__init__()
        self._requests = requests

    def __missing__(self, key: tuple[int, int]) -> Counter:
        api_key, version = key
        found = self[key] = self._requests.labels(API_TABLE[api_key].name, str(version))
        return found


class TlsMetrics:
    """The metrics of listeners with TLS."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tls_handshakes = Counter(
            "penstock_gateway_tls_handshakes",
            "Handshakes of TLS that ended, by outcome: `completed`, `failed`, `timeout`, `closed` by the client, "
            "`refused` because there are too many, `connection_rate` by a quota, `unknown_name`, or `stopped`.",
            ["outcome"],
            registry=registry,
        )
        self.tls_handshakes_open = Gauge(
            "penstock_gateway_tls_handshakes_open", "Handshakes of TLS in progress.", registry=registry
        )
        self.certificate_expiry_seconds = Gauge(
            "penstock_gateway_certificate_expiry_seconds",
            "When the certificate of a listener expires, in seconds since 1970.",
            ["listener"],
            registry=registry,
        )
        self.certificate_reloads = Counter(
            "penstock_gateway_certificate_reloads",
            "Changed certificate files that were read, by outcome: `completed`, or `failed`: the old ones serve on.",
            ["outcome"],
            registry=registry,
        )


class GatewayMetrics(TlsMetrics):
    """The gateway's own metrics; other parts register theirs in the same `registry`."""

    def __init__(self, registry: CollectorRegistry, *, topics_max: int = TOPICS_MAX) -> None:
        super().__init__(registry)
        self.registry = registry
        self.topic_bytes = TopicBytes(registry, topics_max)
        seconds = Histogram(
            "penstock_gateway_request_seconds",
            "Time from the arrival of a request to its answer.",
            ["api"],
            buckets=REQUEST_SECONDS_BUCKETS,
            registry=registry,
        )
        self.request_seconds = _ByApi(seconds)
        requests = Counter(
            "penstock_gateway_requests",
            "Requests that were handled, by API and version. Old versions come from old clients.",
            ["api", "version"],
            registry=registry,
        )
        self.requests = _ByVersion(requests)
        self._add_connections(registry)
        self.produced_bytes = Counter(
            "penstock_gateway_produced_bytes", "Record bytes handed to flushers.", registry=registry
        )
        self.batches_rejected = Counter(
            "penstock_gateway_batches_refused",
            "Produced record batches that were rejected, by Kafka error.",
            ["error"],
            registry=registry,
        )
        self.throttled = Counter(
            "penstock_gateway_throttled",
            "Answers that made clients wait, by the quota that they exceeded.",
            ["quota"],
            registry=registry,
        )
        self.access_denied = Counter(
            "penstock_gateway_access_denied",
            "Operations that access control lists did not allow. In shadow mode `enforced` is `false`.",
            ["api", "operation", "resource_type", "enforced"],
            registry=registry,
        )
        self._add_share_groups(registry)
        self._add_logins(registry)
        self._add_telemetry(registry)
        self.flush_messages = Counter(
            "penstock_gateway_flush_messages", "Messages sent to flushers.", registry=registry
        )
        self.flush_bytes = Counter(
            "penstock_gateway_flush_bytes",
            "Bytes sent to flushers, by the zone of the flusher; another zone than the gateway's is paid traffic.",
            ["zone"],
            registry=registry,
        )
        self.zone_fallbacks = Counter(
            "penstock_gateway_zone_fallbacks",
            "Connections that use a flusher of another zone, because the gateway's zone has none.",
            registry=registry,
        )

        self.requests_at_limit = Counter(
            "penstock_gateway_requests_at_limit",
            "Produce requests that came as the fifth or a later one without an answer on their connection. Stock "
            "producers send no more, so the round trip limits them.",
            registry=registry,
        )
        self.unconfirmed_requests = Counter(
            "penstock_gateway_unconfirmed_requests",
            "Produce requests that were given up, and that a flusher was therefore not allowed to commit.",
            registry=registry,
        )

    def _add_connections(self, registry: CollectorRegistry) -> None:
        """Add the metrics of connections, and of their memory."""
        self.connections = Gauge("penstock_gateway_connections", "Open Kafka connections.", registry=registry)
        self.connections_closed = Counter(
            "penstock_gateway_connections_closed",
            "Connections that the gateway closed, by cause.",
            ["cause"],
            registry=registry,
        )
        self.unsent_bytes = Gauge(
            "penstock_gateway_unsent_bytes", "Bytes of answers that clients did not take yet.", registry=registry
        )
        self.held_bytes = Gauge(
            "penstock_gateway_held_bytes", "Bytes received from clients and not yet answered.", registry=registry
        )
        self.held_bytes_max = Gauge(
            "penstock_gateway_held_bytes_max",
            "Most bytes received and not yet answered (`held_bytes_max`); at that number the gateway stops reading.",
            registry=registry,
        )
        self.unsent_bytes_max = Gauge(
            "penstock_gateway_unsent_bytes_max",
            "Most bytes of answers not taken (`unsent_bytes_max`); above it fetches stop reading.",
            registry=registry,
        )
        self.fetch_session_partitions = Gauge(
            "penstock_gateway_fetch_session_partitions",
            "Partitions in the fetch sessions of clients.",
            registry=registry,
        )

    def _add_logins(self, registry: CollectorRegistry) -> None:
        """Add the metrics of logins and of the audit trail."""
        self.logins = Counter(
            "penstock_gateway_logins",
            "Logins by SASL mechanism and outcome: `succeeded`, `failed`, or `undecided`: users or keys are unknown.",
            ["mechanism", "outcome"],
            registry=registry,
        )

        self.audit_events = Counter(
            "penstock_gateway_audit_events",
            "Events of the audit trail, by kind and outcome: `written` to the topic, `suppressed` because of their "
            "rate, or `dropped` because too many are not written yet.",
            ["kind", "outcome"],
            registry=registry,
        )

    def _add_telemetry(self, registry: CollectorRegistry) -> None:
        """Add the metrics of clients' own metrics (KIP-714)."""
        self.telemetry_pushes = Counter(
            "penstock_gateway_telemetry_pushes",
            "Pushes of clients' own metrics, by Kafka error; `NONE` for accepted ones.",
            ["error"],
            registry=registry,
        )
        self.client_metrics_dropped = Counter(
            "penstock_gateway_client_metrics_dropped",
            "Metrics of clients that are not shown, by the limit that they exceed: `clients`, `metrics` or `series`. A "
            "`kind` counts gauges that another client reports as a sum, and the other way round.",
            ["limit"],
            registry=registry,
        )

    def _add_share_groups(self, registry: CollectorRegistry) -> None:
        """Add the metrics of share groups."""
        acquired = Counter(
            "penstock_gateway_share_acquired_records",
            "Records acquired by members of share groups, by delivery: `first` or `again`.",
            ["delivery"],
            registry=registry,
        )
        self.share_acquired = {
            is_again: acquired.labels("again" if is_again else "first") for is_again in (False, True)
        }
        acknowledged = Counter(
            "penstock_gateway_share_acknowledged_records",
            "Records that members of share groups acknowledged, by kind: `accept`, `release`, `reject`, `renew` "
            "or `gap`.",
            ["kind"],
            registry=registry,
        )
        self.share_acknowledged = {each: acknowledged.labels(each.name.lower()) for each in AcknowledgeType}
        dead_letters = Counter(
            "penstock_gateway_share_dead_letters",
            "Dead letters of share groups: `copied` with the record, written with the `context` alone, or `dropped`. "
            "Then their topic is missing or does not accept them.",
            ["outcome"],
            registry=registry,
        )
        self.share_dead_letters = {each: dead_letters.labels(each) for each in ("copied", "context", "dropped")}
        self.share_rejected = Counter(
            "penstock_gateway_share_refused_acknowledgements",
            "Partitions for which acknowledgements of a member were rejected, by Kafka error.",
            ["error"],
            registry=registry,
        )
