"""The metrics that clients pushed, as Prometheus metrics of this gateway, in limited number.

A metric has the labels `client_id` and `client_instance_id`. Clients report some numbers once for each topic, partition
or broker. Sums are added up over these, and of gauges the largest one counts. A client that pushes nothing for three
intervals and a minute, the longer of both, is removed.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.otlp import Kind, Point

PREFIX = "penstock_client_"
LABELS = ("client_id", "client_instance_id")
INTERVALS_KEPT = 3
_KAFKA_PREFIX = "org.apache.kafka."
_TOTAL = "_total"
_OTHER_CHARACTERS = re.compile(r"[^a-zA-Z0-9]+", re.ASCII)


class Summary(msgspec.Struct):
    """The numbers of one push for one metric, over topics, partitions and brokers."""

    kind: Kind
    value: float


class _Pushed(msgspec.Struct):
    """The metrics of one client instance, by name; at `end_s`, monotonic, they are removed."""

    client_id: str
    values: dict[str, float] = {}
    end_s: float = 0.0


class _Family(msgspec.Struct):
    """One metric, and the number of clients that have it."""

    is_counter: bool
    clients: int = 0


def metric_name(name: str, length_max: int) -> str:
    """A metric's name here, without our prefix: only letters, digits and single underscores; "" if none is left."""
    own = name[: len(_KAFKA_PREFIX) + length_max].removeprefix(_KAFKA_PREFIX)
    return _OTHER_CHARACTERS.sub("_", own).strip("_").lower().removesuffix(_TOTAL)[:length_max]


def add_point(summaries: dict[str, Summary], point: Point, length_max: int) -> None:
    """Add a number to the summary of its metric."""
    name = metric_name(point.name, length_max)
    summary = summaries.get(name)
    if not name or math.isnan(point.value):  # Java reports NaN for an average without values
        return
    if summary is None:
        summaries[name] = Summary(point.kind, point.value)
    elif summary.kind is point.kind:
        summary.value = max(summary.value, point.value) if point.kind is Kind.GAUGE else summary.value + point.value


class ClientMetrics(Collector):
    """The pushed metrics of all clients, the longest silent one first."""

    def __init__(self, metrics: GatewayMetrics, monotonic_s: Callable[[], float], limits: TelemetryLimits) -> None:
        self._monotonic_s = monotonic_s
        self._limits = limits
        self._clients: dict[bytes, _Pushed] = {}  # by client instance id
        self._families: dict[str, _Family] = {}
        self._series = 0
        self._dropped = metrics.client_metrics_dropped
        metrics.registry.register(self)

    def record(self, instance_id: bytes, client_id: str, interval_s: float, summaries: dict[str, Summary]) -> None:
        """Take the metrics of one push."""
        now_s = self._monotonic_s()
        self._remove_silent(now_s)
        pushed = self._clients.pop(instance_id, None) or _Pushed("")
        if len(self._clients) >= self._limits.clients_max:
            self._dropped.labels("clients").inc(len(summaries))
            return
        self._clients[instance_id] = pushed
        pushed.client_id = client_id[: self._limits.client_id_length_max]
        pushed.end_s = now_s + max(interval_s * INTERVALS_KEPT, self._limits.kept_s_min)
        for name, summary in summaries.items():
            limit = "" if name in pushed.values else self._add(name, is_counter=summary.kind is not Kind.GAUGE)
            if limit or self._families[name].is_counter is (summary.kind is Kind.GAUGE):
                self._dropped.labels(limit or "kind").inc()
            elif summary.kind is Kind.DELTA:
                pushed.values[name] = pushed.values.get(name, 0.0) + summary.value
            else:
                pushed.values[name] = summary.value

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: the metrics depend on the clients."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        self._remove_silent(self._monotonic_s())
        shown: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, family in self._families.items():
            of_kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
            shown[name] = of_kind(PREFIX + name, "A metric that clients pushed.", labels=LABELS)
        for instance_id, pushed in self._clients.items():
            labels = (pushed.client_id, id_text(instance_id))
            for name, value in pushed.values.items():
                shown[name].add_metric(labels, value)
        yield from shown.values()

    def _add(self, name: str, *, is_counter: bool) -> str:
        """Make a place for one more series; the limit that does not allow it, or ""."""
        if self._series >= self._limits.series_max:
            return "series"
        family = self._families.get(name)
        if family is None:
            if len(self._families) >= self._limits.metrics_max:
                return "metrics"
            family = self._families[name] = _Family(is_counter)
        elif family.is_counter is not is_counter:
            return "kind"
        family.clients += 1
        self._series += 1
        return ""

    def _remove_silent(self, now_s: float) -> None:
        """Remove the clients whose time is over."""
        for instance_id in [each for each, pushed in self._clients.items() if pushed.end_s <= now_s]:
            for name in self._clients.pop(instance_id).values:
                self._series -= 1
                family = self._families[name]
                family.clients -= 1
                if not family.clients:
                    del self._families[name]


def id_text(instance_id: bytes) -> str:
    """A client instance id as Kafka writes it."""
    return base64.urlsafe_b64encode(instance_id).decode().rstrip("=")
